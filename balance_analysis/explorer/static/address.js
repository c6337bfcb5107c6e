// The state of the page is in its address: every change goes there first.
import { at } from "./dom.js";
import { account, idOf, isKey } from "./names.js";
import { DAY } from "./text.js";

export const MOST = 8;
export const RANGES = { "1D": DAY, "1W": 7 * DAY, "1M": 30 * DAY, "3M": 91 * DAY, ALL: Infinity };

export let about, isFrozen, state;
let onchange;
let address = location.hash; // kept here too: a page in a notebook has no address of its own

const whole = (text) => (/^\d{1,16}$/.test(text) ? Number(text) : NaN);
const ends = (text) => text.split("..").map(whole);
const isRange = (text) => {
  const [from, to] = ends(text);
  const isNear = to > about.start - DAY && from < about.end + DAY;
  return Object.hasOwn(RANGES, text) || (from < to && isNear);
};

/** Return the visible tabs: a report has fewer. */
export const tabs = () => [...at("tabs").children].filter(({ hidden }) => !hidden);

const read = () => {
  const given = new URLSearchParams(address.slice(1));
  const all = (name, fits = () => true) => given.getAll(name).filter(fits);
  const one = (name, fits, otherwise = "") => all(name, fits)[0] ?? otherwise;
  const from = (allowed) => (text) => allowed.includes(text);
  const isSame = (label, text) => label.toLowerCase() === text?.toLowerCase();
  const assetOf = (text) =>
    about.assets.find(({ id, label }) => id === text || isSame(label, text));
  const asset = assetOf(one("asset", assetOf)) ?? about.assets[0];
  const isOurs = (text) => isKey(idOf(text)) && account(idOf(text)).asset === asset?.id;
  const accounts = all("account", isOurs).slice(0, MOST).map(idOf);
  const range = one("range", isRange, firstRange());
  const firstTab = given.has("party") && !isFrozen ? "party" : "holders";
  return {
    asset,
    accounts,
    chosen: all("none").length + accounts.length > 0,
    range: Object.hasOwn(RANGES, range) ? range : ends(range),
    digits: one("digits", from(["all"])),
    tab: one("tab", from(tabs().map(({ dataset }) => dataset.tab)), firstTab),
    party: idOf(one("party")) || null,
    by: one("by", from(["party"])),
    when: Number(one("at", (text) => whole(text) > 0)) || null,
    focus: idOf(one("focus", isOurs)) || null,
    page: Math.min(Number(one("page", (text) => whole(text) >= 0, 0)), 1e6),
    hidden: all("hide"),
  };
};

const follow = (to) => {
  const old = state;
  address = to;
  state = read();
  onchange(old);
};

/** Start the page; `run` shows the state in the address, now and after each change. */
export const enter = (given, frozen, run) => {
  [about, isFrozen, onchange] = [given, frozen, run];
  addEventListener("popstate", () => follow(location.hash));
  follow(address);
};

/** Change the state; the user can share the new address, and go back to the old one. */
export const go = (change, replace = false) => {
  const given = new URLSearchParams(address.slice(1));
  const all = "range" in change ? { page: null, ...change } : change;
  for (const [name, values] of Object.entries(all)) {
    given.delete(name);
    for (const each of [values].flat()) if (each) given.append(name, each);
  }
  const to = `#${given}`;
  try {
    history[replace ? "replaceState" : "pushState"](null, "", to);
  } catch {
    // the page still shows the new state
  }
  follow(to);
};
export const again = () => go({}, true);

/** Show a tab from its top. */
const visit = (change) => {
  go({ page: null, ...change });
  at("panel").focus({ preventScroll: true });
  const { top } = at("tabs").getBoundingClientRect();
  if (top < 0 || top > innerHeight * 0.8) at("tabs").scrollIntoView();
};
export const open = (key) => {
  const more = state.accounts.includes(key) ? {} : add(key);
  visit({ tab: "account", focus: key, ...more });
};
export const openParty = (party) => visit({ tab: "party", party });
export const explain = (key, time) => visit({ tab: "explain", focus: key, at: time });
export const choose = ({ id }) =>
  go({ asset: id, account: null, none: null, focus: null, hide: null, page: null });
export const add = (key) => ({
  account: [...new Set([...state.accounts, key])].slice(-MOST),
  none: null,
});

export const span = (range = state.range) => {
  if (Array.isArray(range)) return range;
  return [Math.max(about.start, about.end - RANGES[range]), about.end];
};

/** Return the range to open the page with: the longest one at whose start balances are known. */
export const firstRange = () => {
  const later = Object.keys(RANGES).findLast((name) => span(name)[0] > about.start);
  return about.opened ? "ALL" : (later ?? "ALL");
};
