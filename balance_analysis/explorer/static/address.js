// The page shows what its address says, and every change goes there first.
import { DAY, account, amount, idOf, isKey, moment, places, rounded } from "./text.js";

export const MOST = 8;
export const RANGES = { "1D": DAY, "1W": 7 * DAY, "1M": 30 * DAY, "3M": 91 * DAY, ALL: Infinity };
const OF_REPORTS = ["holders", "totals", "flows", "movers", "account", "notes"];
const TABS = [...OF_REPORTS, "party", "explain"];

export let about, isFrozen, state;
let onchange;
let address = location.hash; // a page in a notebook can't have one of its own

const whole = (text) => (/^\d{1,16}$/.test(text) ? Number(text) : NaN);
const ends = (text) => text.split("..").map(whole);
const isRange = (text) => {
  const [from, to] = ends(text);
  const isNear = to > about.start - DAY && from < about.end + DAY;
  return Object.hasOwn(RANGES, text) || (from < to && isNear);
};

const read = () => {
  const given = new URLSearchParams(address.slice(1));
  const all = (name, fits = () => true) => given.getAll(name).filter(fits);
  const one = (name, fits, otherwise = "") => all(name, fits)[0] ?? otherwise;
  const from = (allowed) => (text) => allowed.includes(text);
  const assetOf = (text) =>
    about.assets.find(
      ({ id, label }) => id === text || label.toLowerCase() === text?.toLowerCase(),
    );
  const asset = assetOf(one("asset", assetOf)) ?? about.assets[0];
  const isOurs = (text) => isKey(idOf(text)) && account(idOf(text)).asset === asset?.id;
  const accounts = all("account", isOurs).slice(0, MOST).map(idOf);
  const range = one("range", isRange, firstRange());
  return {
    asset,
    accounts,
    chosen: all("none").length + accounts.length > 0,
    range: Object.hasOwn(RANGES, range) ? range : ends(range),
    digits: one("digits", from(["all"])),
    tab: one(
      "tab",
      from(isFrozen ? OF_REPORTS : TABS),
      given.has("party") && !isFrozen ? "party" : "holders",
    ),
    party: idOf(one("party")) || null,
    by: one("by", from(["party"])),
    when: Number(one("at", (text) => whole(text) > 0)) || null,
    focus: idOf(one("focus", isOurs)) || null,
    page: Math.min(Number(one("page", (text) => whole(text) >= 0, 0)), 1e6),
    hidden: all("hide"),
  };
};

/** Begin with the data that there is; `run` shows what the address says, after each change. */
export const enter = (given, frozen, run) => {
  [about, isFrozen, onchange] = [given, frozen, run];
};
export const reread = () => {
  state = read();
};
export const goBack = () => {
  address = location.hash;
  onchange();
};

/** Change what is shown; the address can be sent and gone back to. */
export const go = (change, replace = false) => {
  const given = new URLSearchParams(address.slice(1));
  for (const [name, values] of Object.entries({
    ...("range" in change && { page: null }),
    ...change,
  })) {
    given.delete(name);
    for (const each of [values].flat()) if (each) given.append(name, each);
  }
  address = `#${given}`;
  try {
    history[replace ? "replaceState" : "pushState"](null, "", address);
  } catch {
    // what is shown counts
  }
  onchange();
};
export const again = () => go({}, true);
export const choose = ({ id }) =>
  go({ asset: id, account: null, none: null, focus: null, hide: null, page: null });
export const add = (key) => ({
  account: [...new Set([...state.accounts, key])].slice(-MOST),
  none: null,
});

export const span = (range = state.range) => {
  if (Array.isArray(range)) return range;
  return [
    range === "ALL" ? about.start : Math.max(about.start, about.end - RANGES[range]),
    about.end,
  ];
};
/** Return the range that the page opens with: the longest one at whose start balances are known. */
export const firstRange = () => {
  const later = Object.keys(RANGES).findLast((name) => span(name)[0] > about.start);
  return about.opened ? "ALL" : (later ?? "ALL");
};
/** Return the range of a table: in a report, the smallest one with a button around the chart's. */
export const preset = (range = state.range) => {
  if (!isFrozen || !Array.isArray(range)) return range;
  return Object.keys(RANGES).find((name) => span(name)[0] <= range[0]) ?? "ALL";
};
export const bounds = (range = preset()) => {
  const [start, end] = span(range).map(Math.round);
  return Object.entries({ start: String(start), end: String(Math.max(end, start + 1)) });
};
/** Return the parts of a range in which rows may be missing, in words. */
export const gapsIn = ([start, end]) => {
  const hit = about.gaps.filter(([from, to]) => from < end && to > start);
  const more = hit.length > 3 ? `; ${hit.length - 3} more` : "";
  return hit.slice(0, 3).map(between).join("; ") + more;
};

/** Return why balances of a moment are unknown: rows that may be missing up to then, or were never seen. */
export const whyUnknown = (time) => {
  const gap = about.gaps.findLast(([from]) => from <= time);
  const changed = gap
    ? `what may have changed in ${between(gap)}, until an account's next row; `
    : "";
  return `Not known: ${changed}what accounts held before their first row.`;
};

export const between = (ends) =>
  ends.map((time) => when(time, ends).replace(/ 00:00:00$/, "")).join(" to ");
/** Return the last moment of a range that the data have. */
export const lastOf = ([, end]) => Math.min(Math.round(end), about.end) - 1;
export const justBefore = (time) => `just before ${when(time + 1).replace(/ 00:00:00$/, "")}`;
export const decimals = () => state.asset.decimals ?? 0;
/** Write an amount of the asset: as many decimals as matter, or all if they are asked for. */
export const written = (text, own = decimals()) =>
  state.digits ? amount(text, own) : rounded(text, own, places([text], own));
/** Write a moment: to the second, unless all digits are asked for or the chart shows less than a minute. */
export const when = (time, [start, end] = span()) =>
  moment(Math.round(time)).slice(0, state.digits || end - start < 60e6 ? undefined : 19);
export const unitOf = ({ decimals: own, label }) =>
  own === null ? `${label}, smallest units` : label;
export const unit = () => unitOf(state.asset);
/** Return the class that colours one of several; beyond the colours there are, further ones are dashed. */
export const inkOf = (place) => `s${place % 8}${place < 8 ? "" : " dashed"}`;
export const value = (text) => (text === null ? null : Number(text) / 10 ** decimals());

export const zoom = (from, to) => {
  const grain = to - from > 3600e6 ? 1e6 : 1;
  const length = Math.min(Math.max(to - from, 1000), about.end - about.start + DAY);
  const first = Math.min(Math.max(from, about.start - DAY / 2), about.end);
  const start = Math.round(first / grain) * grain;
  if (start <= about.start && start + length >= about.end) return go({ range: "ALL" }, true);
  go({ range: `${Math.max(0, start)}..${start + Math.round(length / grain) * grain}` }, true);
};
export const panBy = (part, [start, end] = span()) =>
  zoom(start + part * (end - start), end + part * (end - start));
export const zoomBy = (by, centre = (span()[0] + span()[1]) / 2) =>
  zoom(centre - (centre - span()[0]) * by, centre + (span()[1] - centre) * by);
