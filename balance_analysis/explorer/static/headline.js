// What is chosen, at a glance: the asset over the range, and each account of the chart.
import { about, between, bounds, firstRange, go, inkOf, isFrozen, preset, span, state, unit, when, written } from "./address.js";
import { get } from "./data.js";
import { at, linked, make, refill } from "./dom.js";
import { open, origin } from "./panels.js";
import { account, amount, count, meaning, ratio, unknown, words } from "./text.js";

let inHeadline; // what is asked for in it

const records = ({ columns, rows }) => rows.map((row) => Object.fromEntries(columns.map(({ name }, n) => [name, row[n]])));
const signed = (text) => (text === null ? unknown : `${BigInt(text) > 0n ? "+" : ""}${written(text)}`);
const part = (net, held) => (net !== null && held !== null && Number(held) ? `${Number(net) > 0 ? "+" : ""}${ratio(Number(net) / Math.abs(Number(held)))}` : "");

/** Return a tile: what it is, what it says, and what there is to add. */
const tile = (name, text, more = "", whole = undefined, run = undefined) => make("div", { class: text === unknown ? "tile lacking" : "tile" }, make("dt", { title: meaning(name) }, words(name)),
  make("dd", { title: whole === text ? undefined : whole }, linked(text, run), ...(more ? [make("small", {}, more)] : [])));
const held = (name, text, more, run = undefined, shown = written) => tile(name, shown(text), more, amount(text, state.units ? 0 : state.asset.decimals ?? 0), run);

/** Add up what flowed in all periods; where one is not known, so is the sum, but first balances add nothing. */
const flowTile = (name, flows) => {
  const lacking = flows.reduce((sum, one) => sum + (one.unknown ?? 0), 0), isWhole = flows.every((one) => one[name] !== null || one.unknown);
  const sum = isWhole && flows.some((one) => one[name] !== null) ? String(flows.reduce((so, one) => so + BigInt(one[name] ?? 0), 0n)) : null;
  return held(name, sum, lacking ? `without ${count(lacking)} first ${lacking === 1 ? "balance" : "balances"}` : "");
};

const assetTiles = (levels, flows, end) => {
  const is = levels.find(({ timestamp }) => timestamp >= end - 1) ?? { total: null, parties: null }, was = levels.find(({ timestamp }) => timestamp < end - 1) ?? { total: null };
  const net = is.total === null || was.total === null ? null : String(BigInt(is.total) - BigInt(was.total)), before = (text) => (was.total === null ? "" : `${text} before`);
  const lacking = (number, one, more) => (number ? `${count(number)} ${number === 1 ? one : more} not known` : "");
  return [held("total", is.total, lacking(is.unknown, "account", "accounts"), isFrozen ? undefined : () => go({ tab: "holders", at: null })),
    held("net", net, net === null ? "before the range: unknown" : [part(net, was.total), lacking(was.unknown, "account", "accounts")].filter(Boolean).join(", "), undefined, signed),
    ...["inflow", "outflow"].map((name) => flowTile(name, flows)),
    tile("parties", count(is.parties), [before(count(was.parties)), lacking(is.unknown_parties, "party", "parties")].filter(Boolean).join(", "))];
};

/** Return what an account did: its change is since the range began, or since its first balance where nothing is known before. */
const accountTiles = ({ account: key, opening, closing, net, minimum, minimum_at: low, maximum, maximum_at: high, share, first_seen: first }) => {
  const begun = opening ?? (net === null || closing === null ? null : String(BigInt(closing) - BigInt(net))), from = (name) => origin(key)(name, { minimum_at: low, maximum_at: high });
  return [held("opening", opening, "", opening === null ? undefined : from("opening")),
    held("net", net, [part(net, begun), opening === null && net !== null && first !== null ? `since ${when(first)}` : ""].filter(Boolean).join(" "), undefined, signed),
    held("closing", closing, "", from("closing")), held("maximum", maximum, high === null ? "" : when(high), from("maximum")),
    held("minimum", minimum, low === null ? "" : when(low), from("minimum")), tile("share", ratio(share), share === null ? "" : `of all ${state.asset.label}`)];
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
      sum ? make("dl", { class: "tiles" }, ...accountTiles({ ...sum, account: key })) : told(found[isFrozen ? n : 0]?.refused ?? "Nothing is known of it."));
  };
  const why = about.opened || firstRange() === "ALL" || preset() !== firstRange() ? "" : ". When the data begin, no balance is known yet, so the page opens with a later range.";
  refill(at("headline"), [make("p", { class: "note" }, `${preset() === "ALL" ? "All of the time" : `${between(span(preset()))} UTC`}, in ${unit()}${why}`),
    refused ? told(refused) : make("dl", { class: "tiles whole" }, ...assetTiles(records(headline), records(flows), Math.min(Number(range[1][1]), about.end))), ...(lost && !refused ? [told(lost)] : [])]);
  at("did").hidden = !accounts.length;
  refill(at("each"), accounts.map(of));
};
