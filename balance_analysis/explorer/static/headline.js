// The asset over the range, at a glance.
import {
  about,
  again,
  between,
  bounds,
  decimals,
  firstRange,
  gapsIn,
  go,
  isFrozen,
  preset,
  span,
  state,
  unit,
  written,
} from "./address.js";
import { get } from "./data.js";
import { at, linked, make, note, refill, refusal } from "./dom.js";
import { firstRow } from "./table.js";
import { amount, count, many, meaning, ratio, unknown, words } from "./text.js";

let inHeadline; // what is asked for in it

/** Return a tile: its name, its text, more in small print, and the whole text where that is longer. */
const tile = (name, text, more = [], whole = text, run = undefined) => {
  const small = more.filter(Boolean).join(", ");
  const kind = text === unknown ? "tile lacking" : "tile";
  const value = make("dd", { title: whole === text ? undefined : whole }, linked(text, run));
  if (small) value.append(make("small", {}, small));
  return make("div", { class: kind }, make("dt", { title: meaning(name) }, words(name)), value);
};

const held = (name, text, more, run) =>
  tile(name, written(text), more, amount(text, decimals()), run);
const lacking = (number, one, more) => number && `${many(number, one, more)} not known`;

const tiles = ({ level, change }, { sum }) => {
  const [is, moved] = [firstRow(level), firstRow(change)];
  const hit = gapsIn(span(preset()));
  const isSum = moved.change === null && sum.net !== null;
  const firsts = sum.unknown && `without ${many(sum.unknown, "first balance")}`;
  const why = hit ? "rows may be missing" : firsts || "unknown before the range";
  const because = (text, more) => (text === null ? [why] : more);
  const net = isSum ? sum.net : moved.change;
  const sign = (text, isMore) => (isMore ? `+${text}` : text);
  const part = moved.change_percent;
  const percent = part === null ? "" : sign(ratio(part / 100), part > 0);
  const signed = sign(written(net), net !== null && BigInt(net) > 0n);
  const flow = (name) => held(name, sum[name], because(sum[name], [firsts]));
  const end = Math.round(span(preset())[1]);
  const at_ = end < about.end ? end - 1 : null;
  const show = isFrozen ? undefined : () => go({ tab: "holders", at: at_ });
  const all = [
    held("total", is.total, [lacking(is.unknown, "account")], show),
    tile("net", signed, because(net, [isSum ? firsts : percent]), amount(net, decimals())),
    flow("inflow"),
    flow("outflow"),
    tile("parties", count(is.holders), [lacking(is.unknown_holders, "party", "parties")]),
  ];
  const isLong = all.some((one) => one.querySelector("dd").firstChild.textContent.length > 20);
  return make("dl", { class: isLong ? "tiles long" : "tiles" }, ...all);
};

export const showHeadline = async () => {
  const range = [["asset", state.asset.id], ...bounds()];
  const wanted = JSON.stringify([range, state.digits]);
  if (wanted === inHeadline) return;
  inHeadline = wanted;
  const asked = [get("headline", range), get("flows", range, "headline flows")];
  const found = await Promise.all(asked).catch((error) => error);
  if (inHeadline !== wanted) return;
  const isFailure = found instanceof Error;
  if (isFailure) inHeadline = null;
  if (isFailure && found.name === "AbortError") return;
  const isLater = !about.opened && preset() === firstRange() && preset() !== "ALL";
  const later = isLater
    ? ". The data begin without balances, so the page opens with a later range"
    : "";
  const over = preset() === "ALL" ? "All of the time" : `${between(span(preset()))} UTC`;
  const hit = gapsIn(span(preset()));
  const missing = hit ? ` Rows may be missing: ${hit}.` : "";
  refill(at("headline"), [
    note(`${over}, in ${unit()}${later}.${missing}`),
    isFailure ? refusal(found, again) : tiles(...found),
  ]);
};
