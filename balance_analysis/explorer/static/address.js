// What is shown is told by the address, and every change of it goes there first.
import { DAY, account, amount, idOf, isKey, moment, places, rounded } from "./text.js";

export const MOST = 8;
export const RANGES = { "1D": DAY, "1W": 7 * DAY, "1M": 30 * DAY, "3M": 91 * DAY, ALL: Infinity };
export const STACKS = ["stacked", "shares", "log"];
const TABS = ["holders", "totals", "flows", "movers", "account", "party", "explain", "notes"];

export let about, isFrozen, state;
let onchange, kept = []; // what shows what the address tells; parts of it that couldn't be used, and are gone from it
let address = location.hash; // a page in a notebook can't have one of its own, and a browser takes only so many a second

const read = () => {
  const given = new URLSearchParams(address.slice(1)), understood = new Set(), whole = (text) => (/^\d{1,16}$/.test(text) ? Number(text) : NaN);
  const all = (name, fits = () => true, most = MOST) => {
    const found = given.getAll(name).filter(fits).slice(0, most);
    for (const each of found) understood.add(`${name}=${each}`);
    return found;
  };
  const first = (name, fits) => all(name, fits, 1)[0], one = (name, allowed, otherwise = "") => first(name, (text) => allowed.includes(text)) ?? otherwise;
  const assetOf = (text) => about.assets.find(({ id }) => id === text) ?? about.assets.find(({ label }) => label.toLowerCase() === text?.toLowerCase());
  const asset = assetOf(first("asset", assetOf)) ?? about.assets[0];
  const isOurs = (text) => isKey(idOf(text)) && account(idOf(text)).asset === asset?.id, accounts = all("account", isOurs).map(idOf), ends = (text) => text.split("..").map(whole);
  const range = first("range", (text) => Object.hasOwn(RANGES, text) || (([from, to]) => from < to && to > about.start - DAY && from < about.end + DAY)(ends(text))) ?? firstRange();
  const found = {
    asset, accounts, chosen: all("none").length + accounts.length > 0, range: Object.hasOwn(RANGES, range) ? range : ends(range),
    log: all("log").length > 0, as: one("as", ["index", "difference"]), units: one("units", ["smallest"]), digits: one("digits", ["all"]), theme: one("theme", ["light", "dark"]),
    tab: one("tab", TABS, given.has("party") ? "party" : "holders"), party: idOf(first("party")), by: one("by", ["party"]), when: Number(first("at", (text) => whole(text) > 0) ?? 0) || null,
    focus: idOf(first("focus", isOurs)), page: Math.min(Number(first("page", (text) => whole(text) >= 0) ?? 0), 1e6), hidden: all("hide", undefined, Infinity), stack: one("totals", STACKS),
  };
  return { ...found, left: [...kept, ...given].filter((pair) => !understood.has(pair.join("="))) };
};

/** Begin with what there is; `run` shows what the address tells, whenever it changes. */
export const enter = (given, frozen, run) => { [about, isFrozen, onchange] = [given, frozen, run]; };
export const reread = () => { state = read(); };
export const goBack = () => { [address, kept] = [location.hash, []]; onchange(); };

/** Change what is shown: the address has it, so that it can be sent and gone back to. What can't be used of it goes; `keeps` says that it is still told of. */
export const go = (change, replace = false, keeps = false) => {
  const left = state.left.map(String), given = new URLSearchParams([...new URLSearchParams(address.slice(1))].filter((pair) => !left.includes(String(pair))));
  kept = keeps ? state.left : [];
  for (const [name, values] of Object.entries({ ...("range" in change && { page: null }), ...change })) {
    given.delete(name);
    for (const each of [values].flat()) if (each) given.append(name, each);
  }
  address = `#${given}`;
  try {
    history[replace ? "replaceState" : "pushState"](null, "", address);
  } catch { /* what is shown counts */ }
  onchange();
};
export const choose = ({ id }) => go({ asset: id, account: null, none: null, focus: null, hide: null, page: null });
export const add = (key) => ({ account: [...new Set([...state.accounts, key])].slice(-MOST), none: null });
/** Return the range that the page opens with: the longest one at whose beginning balances are known. */
export const firstRange = () => (about.opened ? "ALL" : Object.keys(RANGES).findLast((name) => span(name)[0] > about.start) ?? "ALL");
export const span = (range = state.range) => {
  if (Array.isArray(range)) return range;
  return [range === "ALL" ? about.start : Math.max(about.start, about.end - RANGES[range]), about.end];
};
// Frozen tables are of a range that has a button: of the smallest one around what the chart shows.
export const preset = (range = state.range) => {
  if (!isFrozen || !Array.isArray(range)) return range;
  return Object.keys(RANGES).find((name) => span(name)[0] <= range[0]) ?? "ALL";
};
export const bounds = (range) => [["start", span(range)[0]], ["end", Math.max(...span(range))]].map(([name, value]) => [name, String(Math.round(value))]);
export const between = (ends) => ends.map((time) => when(time, ends).replace(/ 00:00:00$/, "")).join(" to ");
export const decimals = () => (state.units ? 0 : state.asset.decimals ?? 0);
/** Write an amount of the asset, with its unit's decimals: as many as matter, or all if they are asked for. */
export const written = (text, own = decimals()) => (state.digits ? amount(text, own) : rounded(text, own, places([text], own)));
/** Write a moment: to the second, unless every digit is asked for or the chart shows less than a minute. */
export const when = (time, [start, end] = span()) => moment(Math.round(time)).slice(0, state.digits || end - start < 60e6 ? undefined : 19);
export const unit = () => (state.asset.decimals === null || state.units ? `${state.asset.label}, smallest units` : state.asset.label);
/** Return what colours something of its place among others: of more than there are colours, further ones are dashed. */
export const inkOf = (place) => `s${place % 8}${place < 8 ? "" : " dashed"}`;
export const value = (text) => (text === null ? null : Number(text) / 10 ** decimals());
export const zoom = (from, to) => {
  const grain = to - from > 3600e6 ? 1e6 : 1, length = Math.min(Math.max(to - from, 1000), about.end - about.start + DAY);
  const start = Math.round(Math.min(Math.max(from, about.start - DAY / 2), about.end) / grain) * grain;
  if (start <= about.start && start + length >= about.end) return go({ range: "ALL" }, true);
  go({ range: `${Math.max(0, start)}..${start + Math.round(length / grain) * grain}` }, true);
};
export const panBy = (part, [start, end] = span()) => zoom(start + part * (end - start), end + part * (end - start));
export const zoomBy = (by, centre = (span()[0] + span()[1]) / 2) => zoom(centre - (centre - span()[0]) * by, centre + (span()[1] - centre) * by);
