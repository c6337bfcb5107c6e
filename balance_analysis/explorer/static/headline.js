// What is chosen, at a glance: the asset over the range, and each account of the chart.
import { about, between, bounds, inkOf, isFrozen, preset, span, state, unit, when, written } from "./address.js";
import { get } from "./data.js";
import { at, make, refill } from "./dom.js";
import { open } from "./panels.js";
import { account, amount, count, meaning, ratio, unknown, words } from "./text.js";

let inHeadline; // what is asked for in it

const records = ({ columns, rows }) => rows.map((row) => Object.fromEntries(columns.map(({ name }, n) => [name, row[n]])));
const signed = (text) => (text === null ? unknown : `${BigInt(text) > 0n ? "+" : ""}${written(text)}`);
const part = (net, held) => (net !== null && held !== null && Number(held) ? `${Number(net) > 0 ? "+" : ""}${ratio(Number(net) / Math.abs(Number(held)))}` : "");

/** Return a tile: what it is, what it says, and what there is to add. */
const tile = (name, text, more = "", whole = undefined) => make("div", { class: text === unknown ? "tile lacking" : "tile" }, make("dt", { title: meaning(name) }, words(name)),
  make("dd", { title: whole === text ? undefined : whole }, text, ...(more ? [make("small", {}, more)] : [])));
const held = (name, text, more) => tile(name, written(text), more, amount(text, state.units ? 0 : state.asset.decimals ?? 0));

/** Add up what flowed in all periods; where one is not known, so is the sum, but first balances add nothing. */
const flowTile = (name, flows) => {
  const lacking = flows.reduce((sum, one) => sum + (one.unknown ?? 0), 0), isWhole = flows.every((one) => one[name] !== null || one.unknown);
  const sum = isWhole && flows.some((one) => one[name] !== null) ? String(flows.reduce((so, one) => so + BigInt(one[name] ?? 0), 0n)) : null;
  return held(name, sum, lacking ? `without the first balance of ${count(lacking)} ${lacking === 1 ? "account" : "accounts"}` : "");
};

const assetTiles = (levels, flows, end) => {
  const is = levels.find(({ timestamp }) => timestamp >= end - 1) ?? { total: null, holders: null, largest: null }, was = levels.find(({ timestamp }) => timestamp < end - 1) ?? {};
  const isOver = Boolean(is.total && was.total), net = isOver ? String(BigInt(is.total) - BigInt(was.total)) : null;
  const lacking = (one) => (one.unknown ? `, ${count(one.unknown)} not known` : "");
  return [held("total", is.total, isOver ? `${signed(net)} over the range${part(net, was.total) && `, ${part(net, was.total)}`}` : "before the range: unknown"),
    tile("holders", count(is.holders), `${isOver ? `${count(was.holders)} before the range` : ""}${lacking(is)}`.replace(/^, /, "")),
    tile("largest", ratio(is.largest), isOver ? `${ratio(was.largest)} before the range` : ""), ...["inflow", "outflow"].map((name) => flowTile(name, flows))];
};

/** Return what an account did: its change is since the range began, or since its first balance where nothing is known before. */
const accountTiles = ({ opening, closing, net, minimum, minimum_at: low, maximum, maximum_at: high, share, first_seen: first }) => {
  const begun = opening ?? (net === null || closing === null ? null : String(BigInt(closing) - BigInt(net)));
  return [held("closing", closing), tile("net", signed(net), [part(net, begun), opening === null && net !== null && first !== null ? `since ${when(first)}` : ""].filter(Boolean).join(" "), amount(net, state.units ? 0 : state.asset.decimals ?? 0)),
    held("maximum", maximum, high === null ? "" : when(high)), held("minimum", minimum, low === null ? "" : when(low)), tile("share", ratio(share), share === null ? "" : `of all ${state.asset.label}`)];
};

export const showHeadline = async () => {
  const { asset, accounts, chosen, units, digits } = state, range = bounds(preset());
  const wanted = JSON.stringify([asset.id, accounts, range, units, digits]);
  if (wanted === inHeadline || !chosen) return;
  inHeadline = wanted;
  const ask = (view, some, as) => get(view, [...some, ...range], as).catch((error) => { if (error.name === "AbortError") throw error; return { refused: error.message }; });
  const ours = accounts.map((key) => ["account", key]), asked = isFrozen ? ours.map((one) => ask("summary", [one])) : ours.length ? [ask("summary", ours)] : [];
  const [{ headline, refused }, { flows = { columns: [], rows: [] }, refused: lost }, ...found] = await Promise.all([ask("headline", [["asset", asset.id]]), ask("flows", [["asset", asset.id]], "headline flows"), ...asked])
    .catch((error) => { if (inHeadline === wanted) inHeadline = null; throw error; });
  if (inHeadline !== wanted) return;
  const told = (text) => make("p", { class: "note" }, text), sums = found.flatMap(({ summary }) => (summary ? records(summary) : []));
  const of = (key, n) => {
    const sum = sums.find((one) => one.account === key) ?? (isFrozen && found[n]?.summary && records(found[n].summary)[0]), { label, ids } = account(key);
    return make("section", { class: "of" }, make("h3", {}, make("span", { class: `swatch ${inkOf(n)}`, "aria-hidden": "true" }), make("button", { type: "button", class: "link", title: ids, onclick: () => open(key) }, label)),
      sum ? make("dl", { class: "tiles" }, ...accountTiles(sum)) : told(found[isFrozen ? n : 0]?.refused ?? "Nothing is known of it."));
  };
  refill(at("headline"), [make("p", { class: "note" }, `${between(span(preset()))} UTC, in ${unit()}`),
    refused ? told(refused) : make("dl", { class: "tiles whole" }, ...assetTiles(records(headline), records(flows), Math.min(Number(range[1][1]), about.end))), ...(lost && !refused ? [told(lost)] : [])]);
  refill(at("each"), accounts.map(of));
};
