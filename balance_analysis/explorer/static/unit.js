// Amounts in the unit of the asset.
import { state } from "./address.js";
import { amount, places, rounded } from "./text.js";

export const decimals = () => state.asset.decimals ?? 0;

/** Write an amount of the asset, rounded unless the user wants all digits. */
export const written = (text, own = decimals()) =>
  state.digits ? amount(text, own) : rounded(text, own, places([text], own));

export const unitOf = ({ decimals: own, label }) =>
  own === null ? `${label}, smallest units` : label;

export const unit = () => unitOf(state.asset);

export const value = (text) => (text === null ? null : Number(text) / 10 ** decimals());
