// What stands below the chart, a panel for each tab.
import { RANGES, about, add, between, bounds, choose, decimals, go, inkOf, isFrozen, preset, span, state, unit, when, written } from "./address.js";
import { draw } from "./chart.js";
import { addressOf, get } from "./data.js";
import { at, copier, linked, make, refill } from "./dom.js";
import { whenField } from "./moments.js";
import { column, flowParts, totalParts } from "./plots.js";
import { shown, table } from "./table.js";
import { account, called, count, meaning, moment, words } from "./text.js";

let draws = [], shownOf = [], inPanel; // what is asked for in it

const visit = (change) => {
  go({ page: null, ...change });
  at("panel").focus({ preventScroll: true });
  const { top } = at("tabs").getBoundingClientRect();
  if (top < 0 || top > innerHeight * 0.8) at("tabs").scrollIntoView();
};
export const open = (key) => visit({ tab: "account", focus: key, ...(state.accounts.includes(key) ? {} : add(key)) });
const openParty = (party) => visit({ tab: "party", party });
export const explain = (key, time) => visit({ tab: "explain", focus: key, at: time });

/** Return what tells, of an amount of an account, where it comes from: at the moment that it is of, or `at`. A frozen page has nothing that would. */
export const origin = (own, at) => (name, { account: key = own, timestamp = at, minimum_at: low, maximum_at: high }) => {
  const [start, end] = span(), time = { balance: timestamp, opening: start - 1, closing: Math.min(end, about.end) - 1, minimum: low, maximum: high }[name] ?? null;
  return isFrozen || time === null ? undefined : () => explain(key, Math.round(time));
};

const tableOptions = () => ({ decimals: decimals(), isExact: state.digits === "all", choose: open, chooseParty: openParty });
const sheet = (caption, content, options = {}) => table(`${caption}${content.columns.some(({ kind }) => kind === "amount") ? `, in ${unit()}` : ""}`,
  content, { ...tableOptions(), name: caption.toLowerCase().replaceAll(/\W+/g, "-"), ...options });
const asset = () => ["asset", state.asset.id];
const ranged = (range = preset()) => ({ note: `${between(span(range))} UTC` });
const lasting = (range) => `${ranged(range).note}${isFrozen ? ". In a report, this tab is always about all of the time." : ""}`;
const note = (text) => make("p", { class: "note" }, text);
const idsOf = (ids) => make("dl", { class: "ids" }, ...Object.entries(ids).map(([name, text]) => make("div", {}, make("dt", {}, name), make("dd", {}, text, " ", ...(text.length > 11 ? [copier(name, () => text)] : [])))));
const facts = ({ columns, rows: [row = []] }, own = decimals(), from = undefined) => {
  const whole = new Map(columns.map(({ name, kind }, n) => [name, shown(row[n] ?? null, kind, own)]));
  const found = new Map(columns.map(({ name, kind }, n) => [name, kind === "amount" ? written(row[n] ?? null, own) : kind === "moment" && !state.digits ? whole.get(name).slice(0, 19) : whole.get(name)]));
  const cells = Object.fromEntries(columns.map(({ name }, n) => [name, row[n]])), names = [...found].filter(([name, text]) => text && (!found.has(name.replace(/_at$/, "")) || !name.endsWith("_at")));
  return make("dl", { class: "facts" }, ...names.map(([name, text]) =>
    make("div", {}, make("dt", { title: meaning(name) }, words(name)), make("dd", { title: whole.get(name) === text ? undefined : whole.get(name) }, linked(text, from?.(name, cells)), ...(row.length && ![undefined, "–"].includes(found.get(`${name}_at`)) ? [" ", make("small", {}, found.get(`${name}_at`))] : [])))));
};
/** Return a view for the panel, which then says where its data is. */
const look = async (view, parameters = []) => {
  const found = await get(view, parameters);
  shownOf.push([view, parameters]);
  return found;
};
const dataParts = () => (isFrozen || !shownOf.length ? [] : [make("p", { class: "note data" }, "Data: ", ...shownOf.flatMap(([view, parameters], n) => [n ? ", " : "", make("a", { href: addressOf(view, parameters), target: "_blank" }, `${view} JSON`)]))]);

/** Return network limits: those that changed drawn over the time in which they were seen, the others in a short table. */
const said = (value) => (typeof value === "boolean" ? shown(value, "flag") : typeof value === "string" ? value : JSON.stringify(value));
const limitParts = (seen) => {
  const [froms, tos] = ["first_seen", "last_seen"].map((name) => column(seen, name)), more = column(seen, "extra").map((text) => JSON.parse(text ?? "{}"));
  const own = [...seen.columns.slice(4, -1).map(({ name, kind }) => [words(name), column(seen, name).map((held) => (held === null ? "not set" : shown(held, kind)))]),
    ...[...new Set(more.flatMap(Object.keys))].map((name) => [name.replaceAll(/(?<=[a-z\d])(?=[A-Z])/g, " ").toLowerCase(), more.map((each) => (Object.hasOwn(each, name) ? said(each[name]) : "not sent"))])];
  const charts = own.filter(([, texts]) => new Set(texts).size > 1).map(([label, texts]) => {
    const levels = [...new Set(texts)].sort(), box = make("div", {}), places = texts.map((text) => levels.indexOf(text));
    const series = [{ ink: inkOf(0), times: froms.flatMap((from, n) => [from, tos[n] + 1]).slice(0, -1),
      values: places.flatMap((place, n) => [place, place === places[n + 1] ? place : null]).slice(0, -1) }];
    const told = `${label}: ${texts.map((text, n) => `${text} from ${moment(froms[n])} to ${moment(tos[n])}`).join("; ")}`;
    return [make("div", {}, make("h4", {}, label), box), () => draw(box, { series, start: froms[0], end: tos.at(-1), levels, label: told })];
  });
  const kept = own.filter(([, texts]) => new Set(texts).size === 1).map(([name, [text]]) => [name, text]), columns = ["limit", "value"].map((name) => ({ name, kind: "text" }));
  const head = [make("h3", {}, "Limits that changed"), make("p", { class: "note" }, "Where a line breaks, the change came between two looks at the network.")];
  return [...(charts.length ? head : []), make("div", { class: "many" }, ...charts.map(([part]) => part)), ...charts.map(([, run]) => run),
    sheet(charts.length ? "Limits that did not change" : "Network limits", { columns, rows: kept }), sheet("Every state of the limits", { columns: [...seen.columns.slice(0, 4), ...own.map(([name]) => ({ name, kind: "text" }))], rows: seen.rows.map((row, n) => [...row.slice(0, 4), ...own.map(([, texts]) => texts[n])]) })];
};

/** Say what makes up the rest of what a party holds where the first balances of its accounts are in the range. */
const begun = (accounts, own) => {
  const [was, is, net] = ["opening", "closing", "net"].map((name) => column(accounts, name));
  const first = is.flatMap((text, n) => (was[n] === null && text !== null && net[n] !== null ? [BigInt(text) - BigInt(net[n])] : []));
  return first.length ? [note(`${count(first.length)} of its ${count(is.length)} accounts ${first.length === 1 ? "has its first balance" : "have their first balances"} in this range, together ${written(String(first.reduce((sum, one) => sum + one)), own)}. These are neither change nor what came in.`)] : [];
};

const PANELS = {
  async holders() {
    const found = await look("holders", [asset(), ...(state.by ? [["by", state.by]] : []), ...(state.when ? [["at", String(state.when)]] : [])]);
    const options = [["", "the end"], ...Object.keys(RANGES).map((name) => [String(span(name)[0]), moment(span(name)[0])])];
    const pick = isFrozen ? [make("label", { class: "when" }, "At (UTC) ", make("select", { onchange: ({ target }) => go({ at: target.value }) },
      ...options.map(([time, text]) => make("option", { value: time, selected: time === String(state.when ?? "") }, text))))] : whenField(state.when, (time) => go({ at: time }));
    const rest = found.accounts - found.holders.rows.length, { columns, rows } = found.level;
    const said = `Held ${state.when ? `at ${moment(state.when)}` : `just before ${when(about.end)}`} UTC.${rest > 0 ? ` The largest ${count(found.holders.rows.length)} of ${count(found.accounts)} ${state.by ? "parties" : "accounts"}.` : ""}`;
    const by = make("select", { onchange: ({ target }) => go({ by: target.value }) }, ...[["", "account"], ["party", "party"]].map(([text, name]) => make("option", { value: text, selected: text === state.by }, name)));
    const named = columns.map((one) => ({ ...one, name: state.by && one.name === "holders" ? "parties" : one.name })); // whose they are
    return [make("div", { class: "tools" }, ...[pick].flat(), make("label", { class: "when" }, "By ", by)), facts({ columns: named, rows }),
      sheet("Holders", found.holders, { note: said, origin: origin(undefined, state.when ?? about.end - 1) })];
  },
  async totals() {
    const { totals } = await look("totals", [asset(), ...bounds(preset())]);
    return [...totalParts(totals), sheet("Totals by type", totals, ranged())];
  },
  async flows() {
    const { flows, freq } = await look("flows", [asset(), ...bounds(preset())]);
    const caption = `Flows per ${freq}`;
    return [...flowParts(caption, flows), sheet(caption, flows, ranged())];
  },
  async movers() {
    const { movers, accounts } = await look("movers", [asset(), ...bounds(preset())]), shown = movers.rows.length;
    const rest = accounts > shown ? `. The largest ${count(shown)} of ${count(accounts)} accounts that moved.` : "";
    return [sheet("Movers", movers, { note: ranged().note + rest, origin: origin() })];
  },
  async account() {
    const key = state.focus ?? state.accounts[0];
    if (!key) return [note("Add an account above to see its page.")];
    const range = isFrozen ? "ALL" : state.range, of = [["account", key], ...bounds(range)];
    const [found, listing] = await Promise.all([look("account", of), look("rows", [...of, ["page", String(state.page)]])]);
    const { label, type, party, market, asset: id } = account(key);
    const turn = (by, text, hidden) => make("button", { type: "button", hidden, onclick: () => go({ page: state.page + by }) }, text);
    return [make("h3", {}, label), idsOf({ type, party, market: market || "none", asset: id }), note(lasting(range)), facts(found.summary, decimals(), origin(key)),
      ...flowParts("Flows per period", found.periods), sheet("Flows and average per period", found.periods),
      sheet("Rows", listing.rows, { origin: origin(key), note: `Newest first${listing.pages > 1 ? `; part ${state.page + 1} of ${listing.pages} of all ${count(listing.count)} rows` : ""}.` }),
      make("div", { class: "tools" }, turn(-1, "Newer rows", state.page < 1), turn(1, "Older rows", state.page + 1 >= listing.pages))];
  },
  async party() {
    const party = state.party ?? account(state.focus ?? state.accounts[0] ?? "|||").party;
    if (!party) return [note("Add an account above to see its party.")];
    const range = isFrozen ? "ALL" : state.range, found = await look("party", [["party", party], ...bounds(range)]), isOurs = ({ id }) => id === state.asset.id;
    const of = ({ columns, rows }, id) => {
      const place = columns.findIndex(({ name }) => name === "asset_id"), others = (each) => each.filter((_, n) => n !== place);
      return { columns: others(columns), rows: rows.filter((row) => row[place] === id).map(others) };
    };
    const assets = about.assets.filter(({ id }) => column(found.totals, "asset_id").includes(id) || found.untold[id]).sort((one, two) => isOurs(two) - isOurs(one));
    const parts = assets.flatMap((one) => {
      const { id, label, decimals: its } = one, own = state.units ? 0 : its ?? 0, options = { ...tableOptions(), decimals: own, chooseParty: undefined };
      const inUnit = its === null || state.units ? `${label}, smallest units` : label, accounts = of(found.accounts, id), flows = of(found.flows, id);
      if (found.untold[id]) return [make("h3", {}, inUnit), make("p", { class: "note", role: "alert" }, found.untold[id])];
      return [make("h3", {}, inUnit), facts(of(found.totals, id), own), ...begun(accounts, own), table(`Accounts in ${inUnit}`, accounts, { ...options, origin: origin(), name: "accounts" }),
        ...(isOurs(one) ? [...flowParts(`${label}: flows with others per period`, flows), table(`Flows with others, and moved between its own accounts, in ${inUnit}`, flows, { ...options, name: "party-flows" })]
          : [make("p", { class: "tools note" }, make("button", { type: "button", onclick: () => choose(one) }, `Show its flows of ${label}`))])];
    });
    return [make("h3", {}, `Party ${called(party)}`), idsOf({ party }), note(lasting(range)), ...(parts.length ? parts : [note("No account in the data of this range has this party id. The id must be whole here, not short.")])];
  },
  async explain() {
    const key = state.focus ?? state.accounts[0];
    if (isFrozen || !key) return [note(isFrozen ? "Only the page of an archive tells where an amount comes from." : "Add an account above, or click an amount of one, to see where it comes from.")];
    const { explanation, cited } = await look("explain", [["account", key], ...(state.when ? [["at", String(state.when)]] : [])]), { label, type, party, market } = account(key);
    return [make("h3", {}, `Where a balance comes from: ${label}`), idsOf({ type, party, market: market || "none" }), ...whenField(state.when, (time) => go({ at: time })), facts(explanation),
      sheet("The row that it rests on, and those beside it", cited)];
  },
  async notes() {
    const { coverage, limits } = await look("notes");
    return coverage ? [sheet("Coverage", coverage), ...limitParts(limits)] : [note("Only an archive has coverage and network limits.")];
  },
};

export const drawPanel = () => { for (const run of draws) run(); };

export const showPanel = async () => {
  const { asset: one, tab, when, focus, page, units, hidden, stack, range, accounts, digits, party, by } = state;
  const wanted = JSON.stringify([one.id, tab, when, focus, page, units, digits, party, by, hidden, stack, preset(range), ["account", "party", "explain"].includes(tab) && !focus ? accounts : 0]);
  if (wanted === inPanel) return;
  inPanel = wanted;
  for (const button of at("tabs").children) {
    button.setAttribute("aria-selected", String(button.dataset.tab === tab));
    button.tabIndex = button.dataset.tab === tab ? 0 : -1;
  }
  at("panel").setAttribute("aria-labelledby", `tab-${tab}`);
  shownOf = [];
  const parts = await PANELS[tab]().catch((error) => [make("p", { class: "note", role: "alert" }, error.message)]);
  if (inPanel !== wanted) return;
  draws = parts.filter((part) => typeof part === "function");
  refill(at("panel"), [...parts.filter((part) => typeof part !== "function"), ...dataParts()]);
  drawPanel();
};
