// The search: accounts of the asset, and other assets.
import { about, add, choose, go, isFrozen, state, unit, written } from "./address.js";
import { get } from "./data.js";
import { at, fail, make, settled } from "./dom.js";
import { account } from "./text.js";

export const find = async (text, as) => {
  const { rows } = (await get("accounts", isFrozen ? [["asset", state.asset.id]] : [["asset", state.asset.id], ["text", text]], as)).accounts;
  return isFrozen ? rows.filter(([key]) => account(key).text.includes(text.toLowerCase())) : rows;
};

let isWanted = false; // what comes once the search is closed opens nothing
const suggest = settled(async () => {
  const text = at("find").value.trim(), has = (given) => given.toLowerCase().includes(text.toLowerCase());
  const assets = about.assets.filter((one) => text && one.id !== state.asset.id && has(`${one.label} ${one.name} ${one.id}`));
  const accounts = (await find(text, "find").catch((error) => fail(error) ?? [])).slice(0, 30);
  if (!isWanted) return;
  const options = [...assets.map((one) => [`asset ${one.label}`, one.id, () => choose(one)]),
    ...accounts.map(([key, balance]) => [account(key).label, `${written(balance)} ${unit()}`, () => go(add(key))])];
  if (text && !options.length) options.push([`No account of ${state.asset.label} has “${text}” in its ids, type or label`, "", () => {}]);
  at("found").replaceChildren(...options.map(([label, more, run], n) => make("li", { role: "option", id: `found-${n}`, "aria-selected": "false",
    onmousedown: (event) => { event.preventDefault(); pick(run); } }, make("span", {}, label), make("small", {}, more))));
  at("found").hidden = !options.length || document.activeElement !== at("find");
  at("find").setAttribute("aria-expanded", String(!at("found").hidden));
}, 80);
export const offer = () => { isWanted = true; suggest(); };
export const close = () => { isWanted = false; at("found").hidden = true; at("find").setAttribute("aria-expanded", "false"); at("find").removeAttribute("aria-activedescendant"); };
const pick = (run) => { at("find").value = ""; close(); run(); };

export const keysOfSearch = (event) => {
  const options = [...at("found").children], old = options.findIndex((one) => one.ariaSelected === "true");
  if (event.key === "Escape") {
    event.preventDefault(); // a browser would empty the field, which opens the list again
    return close();
  }
  if (event.key === "Enter" && options.length && !at("found").hidden) return options[Math.max(old, 0)].dispatchEvent(new Event("mousedown"));
  const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!by || !options.length) return;
  event.preventDefault();
  const next = (old + by + options.length + (old < 0 && by < 0)) % options.length;
  options.forEach((one, n) => one.setAttribute("aria-selected", String(n === next)));
  options[next].scrollIntoView({ block: "nearest" });
  at("find").setAttribute("aria-activedescendant", options[next].id);
};
