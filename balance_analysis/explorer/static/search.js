// The search: accounts of the asset, and other assets.
import { about, add, choose, go, isFrozen, state, unit, written } from "./address.js";
import { get, histories } from "./data.js";
import { at, make, settled } from "./dom.js";
import { account, hasWords, printable, searched } from "./text.js";

/** Return accounts that have each word of a text, the largest first: keys and balances. */
export const find = async (text, as) => {
  const asset = ["asset", state.asset.id];
  if (!isFrozen) return (await get("accounts", [asset, ["text", text]], as)).accounts.rows;
  const isOurs = ([key]) => account(key).asset === state.asset.id && hasWords(searched(key), text);
  return histories().filter(isOurs);
};

/** Return the parameters of an account's line. */
export const seriesOf = (keys, [start, end], width) => [
  ...keys.map((key) => ["account", key]),
  ...Object.entries({ start: String(start), end: String(end), width: String(width) }),
];
export const WIDEST = 4000;

const field = () => at("find");
let isWanted = false; // an answer that comes after the search is closed opens nothing

const optionsOf = async (text) => {
  const has = (one) => hasWords(`${one.label} ${one.name} ${one.id}`, text);
  const assets = about.assets.filter((one) => text && one.id !== state.asset.id && has(one));
  const others = assets.map((one) => [`asset ${one.label}`, printable(one.id), () => choose(one)]);
  const found = await find(text, "find").catch((error) => error);
  if (found instanceof Error)
    return found.name === "AbortError" ? null : [[found.message, "", close]];
  const own = found.map(([key, balance]) => {
    const held = `${written(balance)} ${unit()}`;
    return [account(key).label, held, () => go(add(key))];
  });
  const none = `No account of ${state.asset.label} has “${text}” in its ids, type or label`;
  const all = [...others, ...own.slice(0, 30)];
  return text && !all.length ? [[none, "", () => {}]] : all;
};

const suggest = settled(async () => {
  const options = await optionsOf(field().value.trim());
  if (!isWanted || !options) return;
  const item = ([label, more, run], n) => {
    const onmousedown = (event) => {
      event.preventDefault();
      field().value = "";
      close();
      run();
    };
    const own = { role: "option", id: `found-${n}`, "aria-selected": "false", onmousedown };
    return make("li", own, make("span", {}, label), make("small", {}, more));
  };
  at("found").replaceChildren(...options.map(item));
  at("found").hidden = !options.length || document.activeElement !== field();
  field().setAttribute("aria-expanded", String(!at("found").hidden));
}, 80);

const offer = () => {
  isWanted = true;
  suggest();
};

const close = () => {
  isWanted = false;
  at("found").hidden = true;
  field().setAttribute("aria-expanded", "false");
  field().removeAttribute("aria-activedescendant");
};

const press = (event) => {
  const options = [...at("found").children];
  const old = options.findIndex((one) => one.ariaSelected === "true");
  if (event.key === "Escape") {
    event.preventDefault(); // a browser would empty the field, which opens the list again
    return close();
  }
  if (event.key === "Enter" && options.length && !at("found").hidden) {
    return options[Math.max(old, 0)].dispatchEvent(new Event("mousedown"));
  }
  const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!by || !options.length) return;
  event.preventDefault();
  const next = (old + by + options.length + (old < 0 && by < 0)) % options.length;
  options.forEach((one, n) => one.setAttribute("aria-selected", String(n === next)));
  options[next].scrollIntoView({ block: "nearest" });
  field().setAttribute("aria-activedescendant", options[next].id);
};

/** Begin to listen to the search field; / leads to it. */
export const listenToSearch = () => {
  const type = () => {
    close();
    offer();
  };
  for (const [event, run] of Object.entries({
    input: type,
    focus: offer,
    blur: close,
    keydown: press,
  })) {
    field().addEventListener(event, run);
  }
  addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target.closest("input, select")) return;
    event.preventDefault();
    field().focus();
  });
};
