// What stands below the chart, a panel for each tab.
import { RANGES, about, add, between, bounds, decimals, go, inkOf, isFrozen, preset, span, state, unit, value, written } from "./address.js";
import { draw } from "./chart.js";
import { addressOf, get } from "./data.js";
import { at, copier, make, refill } from "./dom.js";
import { whenField } from "./moments.js";
import { column, flowParts, totalParts } from "./plots.js";
import { shown, table } from "./table.js";
import { account, amount, called, count, meaning, moment, words } from "./text.js";

let draws = [], shownOf = [], inPanel; // what is asked for in it

const visit = (change) => {
  go({ page: null, ...change });
  at("panel").focus({ preventScroll: true });
  const { top } = at("tabs").getBoundingClientRect();
  if (top < 0 || top > innerHeight * 0.8) at("tabs").scrollIntoView();
};
export const open = (key) => visit({ tab: "account", focus: key, ...(state.accounts.includes(key) ? {} : add(key)) });
const openParty = (party) => visit({ tab: "party", party });

const tableOptions = () => ({ decimals: decimals(), isExact: state.digits === "all", choose: open, chooseParty: openParty });
const sheet = (caption, content, options = {}) => table(`${caption}${content.columns.some(({ kind }) => kind === "amount") ? `, in ${unit()}` : ""}`,
  content, { ...tableOptions(), name: caption.toLowerCase().replaceAll(/\W+/g, "-"), ...options });
const asset = () => ["asset", state.asset.id];
const ranged = (range = preset()) => ({ note: `${between(span(range))} UTC` });
const facts = ({ columns, rows: [row = []] }, own = decimals()) => {
  const whole = new Map(columns.map(({ name, kind }, n) => [name, shown(row[n] ?? null, kind, own)]));
  const found = new Map(columns.map(({ name, kind }, n) => [name, kind === "amount" ? written(row[n] ?? null, own) : kind === "moment" && !state.digits ? whole.get(name).slice(0, 19) : whole.get(name)]));
  const names = [...found].filter(([name]) => !found.has(name.replace(/_at$/, "")) || !name.endsWith("_at"));
  return make("dl", { class: "facts" }, ...names.map(([name, text]) =>
    make("div", {}, make("dt", { title: meaning(name) }, words(name)), make("dd", { title: whole.get(name) === text ? undefined : whole.get(name) }, text, ...(row.length && ![undefined, "–"].includes(found.get(`${name}_at`)) ? [" ", make("small", {}, found.get(`${name}_at`))] : [])))));
};
/** Return a view for the panel, which then says where its data is. */
const look = async (view, parameters = []) => {
  const found = await get(view, parameters);
  shownOf.push([view, parameters, Object.keys(found).filter((part) => found[part]?.columns)]);
  return found;
};
const link = (text, view, form, parameters) => make("a", { href: addressOf(view, form, parameters), target: "_blank" }, text);
const dataParts = () => (isFrozen || !shownOf.length ? [] : [make("p", { class: "note data" }, "Data: ", ...shownOf.flatMap(([view, parameters, parts], n) => [n ? "; " : "", link(`${view} JSON`, view, "json", parameters),
  ...parts.flatMap((part, place) => [", ", link(`${part === view ? "" : `${words(part)} `}CSV`, view, "csv", [...parameters, ...(place || part !== view ? [["part", part]] : [])])])]))]);

/** Return the range in which openings are known, where none was chosen: at the beginning of all mostly nothing is. */
const moved = () => (state.isRanged || about.opened ? preset() : Object.keys(RANGES).findLast((name) => span(name)[0] > about.start) ?? "ALL");

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

const PANELS = {
  async holders() {
    const found = await look("holders", [asset(), ...(state.by ? [["by", state.by]] : []), ...(state.when ? [["at", String(state.when)]] : [])]);
    const options = [["", "the end"], ...Object.keys(RANGES).map((name) => [String(span(name)[0]), moment(span(name)[0])])];
    const pick = isFrozen ? [make("label", { class: "when" }, "At (UTC) ", make("select", { onchange: ({ target }) => go({ at: target.value }) },
      ...options.map(([time, text]) => make("option", { value: time, selected: time === String(state.when ?? "") }, text))))] : whenField(state.when, (time) => go({ at: time }));
    const rest = found.accounts - found.holders.rows.length;
    const note = `Held ${state.when ? `at ${moment(state.when)}` : `just before ${moment(about.end)}`} UTC.${rest > 0 ? ` The largest ${count(found.holders.rows.length)} of ${count(found.accounts)} ${state.by ? "parties" : "accounts"}.` : ""}`;
    const by = make("select", { onchange: ({ target }) => go({ by: target.value }) }, ...[["", "account"], ["party", "party"]].map(([text, name]) => make("option", { value: text, selected: text === state.by }, name)));
    return [...pick, make("label", { class: "when" }, "By ", by), facts(found.concentration), sheet("Holders", found.holders, { note })];
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
    const range = moved(), { movers } = await look("movers", [asset(), ...bounds(range)]);
    const why = range === preset() ? "" : `. What was held at ${moment(about.start)} is not known, so this is a shorter range; choose one above for another.`;
    return [sheet("Movers", movers, { note: ranged(range).note + why })];
  },
  async account() {
    const key = state.focus ?? state.accounts[0];
    if (!key) return [make("p", { class: "note" }, "Add an account above to see its page.")];
    const range = isFrozen ? "ALL" : state.range, of = [["account", key], ...bounds(range)];
    const [found, listing] = await Promise.all([look("account", of), look("rows", [...of, ["page", String(state.page)]])]);
    const one = account(key), ids = [["type", one.type], ["party", one.party], ["market", one.market || "none"], ["asset", one.asset]];
    const turn = (by, text, hidden) => make("button", { type: "button", hidden, onclick: () => go({ page: state.page + by }) }, text);
    return [make("h3", {}, one.label), make("dl", { class: "ids" }, ...ids.map(([name, text]) => make("div", {}, make("dt", {}, name), make("dd", {}, text, " ", ...(text.length > 11 ? [copier(name, () => text)] : []))))),
      make("p", ranged(range).note && { class: "note" }, ranged(range).note), facts(found.summary), ...flowParts("Flows per period", found.periods), sheet("Flows and average per period", found.periods),
      sheet("Rows", listing.rows, { note: `Newest first${listing.pages > 1 ? `; part ${state.page + 1} of ${listing.pages} of all ${count(listing.count)} rows` : ""}.` }),
      make("div", { class: "tools" }, turn(-1, "Newer rows", state.page < 1), turn(1, "Older rows", state.page + 1 >= listing.pages))];
  },
  async party() {
    const party = state.party ?? account(state.focus ?? state.accounts[0] ?? "|||").party;
    if (!party) return [make("p", { class: "note" }, "Add an account above to see its party.")];
    const range = isFrozen ? "ALL" : state.range, found = await look("party", [["party", party], ...bounds(range)]), name = called(party);
    const of = (content, id, held) => ({ ...content, columns: content.columns.filter((one) => one.name !== "asset_id"), rows: content.rows.filter((row) => held(row) === id).map((row) => row.filter((_, n) => content.columns[n].name !== "asset_id")) });
    const place = found.totals.columns.findIndex((one) => one.name === "asset_id"), first = (row) => row[place], isOurs = (id) => id === state.asset.id;
    const assets = about.assets.filter(({ id }) => column(found.totals, "asset_id").includes(id)).sort((one, two) => isOurs(two.id) - isOurs(one.id));
    const parts = assets.flatMap(({ id, label, decimals: own }) => {
      const options = { decimals: state.units ? 0 : own ?? 0 }, totals = of(found.totals, id, first), flows = of(found.flows, id, (row) => row[found.flows.columns.findIndex((one) => one.name === "asset_id")]);
      const inUnit = own === null || state.units ? `${label}, smallest units` : label, title = `${label}: flows with others per period`;
      return [make("h3", {}, inUnit), facts(totals, options.decimals), ...(isOurs(id) ? flowParts(title, flows) : []),
        table(`Accounts in ${inUnit}`, of(found.accounts, id, (row) => account(row[0]).asset), { ...tableOptions(), ...options, chooseParty: undefined, name: "accounts" }),
        ...(isOurs(id) ? [table(`Flows with others, and moved between its own accounts, in ${inUnit}`, flows, { ...tableOptions(), ...options, name: "party-flows" })] : [])];
    });
    const id = make("dl", { class: "ids" }, make("div", {}, make("dt", {}, "party"), make("dd", {}, party, " ", ...(party.length > 11 ? [copier("party", () => party)] : []))));
    return [make("h3", {}, `Party ${name}`), id, make("p", { class: "note" }, ranged(range).note), ...(parts.length ? parts : [make("p", { class: "note" }, "It has no account in the data of this range.")])];
  },
  async notes() {
    const { coverage, limits } = await look("notes");
    return coverage ? [sheet("Coverage", coverage), ...limitParts(limits)] : [make("p", { class: "note" }, "Only an archive has coverage and network limits.")];
  },
};

export const drawPanel = () => { for (const run of draws) run(); };

export const showPanel = async () => {
  const { asset: one, tab, when, focus, page, units, hidden, stack, range, accounts, digits, party, by } = state;
  const wanted = JSON.stringify([one.id, tab, when, focus, page, units, digits, party, by, hidden, stack, preset(range), tab === "movers" && state.isRanged, ["account", "party"].includes(tab) && !focus ? accounts : 0]);
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
