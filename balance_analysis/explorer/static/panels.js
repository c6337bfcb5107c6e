// What stands below the chart, a panel for each tab.
import { RANGES, about, add, between, bounds, decimals, go, inkOf, isFrozen, preset, span, state, unit, value } from "./address.js";
import { draw } from "./chart.js";
import { get } from "./data.js";
import { at, make, refill } from "./dom.js";
import { shown, table } from "./table.js";
import { account, amount, count, kindOf, micros, moment, words } from "./text.js";

let draws = [], inPanel; // what is asked for in it

export const open = (key) => {
  go({ tab: "account", focus: key, page: null, ...(state.accounts.includes(key) ? {} : add(key)) });
  at("panel").focus({ preventScroll: true });
  const { top } = at("tabs").getBoundingClientRect();
  if (top < 0 || top > innerHeight * 0.8) at("tabs").scrollIntoView();
};

const sheet = (caption, content, options = {}) => table(`${caption}${content.columns.some(({ kind }) => kind === "amount") ? `, in ${unit()}` : ""}`,
  content, { decimals: decimals(), choose: open, name: caption.toLowerCase().replaceAll(/\W+/g, "-"), ...options });
const column = (content, name) => content.rows.map((row) => row[content.columns.findIndex((one) => one.name === name)]);
const asset = () => ["asset", state.asset.id];
const ranged = (range = preset()) => ({ note: `${between(span(range))} UTC` });
const facts = ({ columns, rows: [row = []] }) => {
  const found = new Map(columns.map(({ name, kind }, n) => [name, shown(row[n] ?? null, kind, decimals())]));
  const own = [...found].filter(([name]) => !found.has(name.replace(/_at$/, "")) || !name.endsWith("_at"));
  return make("dl", { class: "facts" }, ...own.map(([name, text]) =>
    make("div", {}, make("dt", {}, words(name)), make("dd", {}, text, ...(row.length && ![undefined, "–"].includes(found.get(`${name}_at`)) ? [" ", make("small", {}, found.get(`${name}_at`))] : [])))));
};
/** Return a box for a chart, what it says under the pointer, and what draws it. */
const plot = (series, options) => {
  const box = make("div", { class: "chart" }), said = make("p", { class: "note said" });
  const begin = () => series[0]?.times.findLast((time, n) => time <= span()[0] && series[0].ends?.[n] > span()[0]) ?? span()[0]; // a bar is drawn whole
  const onhover = (time) => {
    const places = series.map(({ times }) => times.findLastIndex((one) => one <= time)), place = Math.max(...places);
    said.textContent = place < 0 ? "" : `${moment(series[places.indexOf(place)].times[place])}: ${
      series.map(({ label, texts }, n) => `${label} ${amount(texts[places[n]] ?? null, decimals())}`).join(" · ")}`;
  };
  return [box, said, () => draw(box, { series, start: begin(), end: span()[1], gaps: about.gaps, until: about.end, log: state.log, onhover, ...options })];
};
const legend = (label, n) => [make("span", { class: `swatch ${inkOf(n)}`, "aria-hidden": "true" }), label];
const flowParts = (caption, content, options) => {
  const series = ["inflow", "outflow"].map((label, n) => ({ label, ink: inkOf(n), times: column(content, "start"), ends: column(content, "end"), texts: column(content, label),
    values: column(content, label).map((text) => (text === null ? null : (n ? -1 : 1) * value(text))) }));
  return [make("p", { class: "tools note" }, ...series.map(({ label }, n) => make("span", {}, ...legend(label, n)))),
    ...plot(series, { label: `${caption}: inflow above, outflow below`, bars: true }), sheet(caption, content, options)];
};

/** Return network limits: those that changed drawn over the time in which they were seen, the others in a short table. */
const limitParts = (seen) => {
  const [froms, tos] = ["first_seen", "last_seen"].map((name) => column(seen, name)), more = column(seen, "extra").map((text) => JSON.parse(text ?? "{}"));
  const own = [...seen.columns.slice(4, -1).map(({ name, kind }) => [words(name), column(seen, name).map((held) => (held === null ? "not set" : shown(held, kind)))]),
    ...[...new Set(more.flatMap(Object.keys))].map((name) => [name, more.map((each) => (Object.hasOwn(each, name) ? JSON.stringify(each[name]) : "not sent"))])];
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
    sheet(charts.length ? "Limits that did not change" : "Network limits", { columns, rows: kept }), sheet("Every state of the limits", seen)];
};

const PANELS = {
  async holders() {
    const found = await get("holders", [asset(), ...(state.when ? [["at", String(state.when)]] : [])]);
    const options = [["", "the end"], ...Object.keys(RANGES).map((name) => [String(span(name)[0]), moment(span(name)[0])])];
    const pick = isFrozen ? make("select", {}, ...options.map(([time, text]) => make("option", { value: time, selected: time === String(state.when ?? "") }, text)))
      : make("input", { value: moment(state.when ?? about.end - 1), size: "25", autocomplete: "off" });
    pick.addEventListener("change", () => {
      const when = isFrozen ? Number(pick.value) : micros(pick.value);
      pick.ariaInvalid = String(Number.isNaN(when));
      if (!Number.isNaN(when)) go({ at: when });
    });
    const rest = found.accounts - found.holders.rows.length;
    const note = `Held at ${moment(state.when ?? about.end - 1)} UTC.${rest > 0 ? ` The largest ${count(found.holders.rows.length)} of ${count(found.accounts)} accounts.` : ""}`;
    return [make("label", { class: "when" }, "At (UTC) ", pick), facts(found.concentration), sheet("Holders", found.holders, { note })];
  },
  async totals() {
    const found = (await get("totals", [asset(), ...bounds(preset())])).totals, peaks = new Map(), sums = new Map();
    for (const [type, time, total] of found.rows) {
      peaks.set(type, Math.max(peaks.get(type) ?? 0, value(total) ?? 0));
      sums.set(time, (sums.get(time) ?? 0) + (value(total) ?? 0));
    }
    const types = [...peaks.keys()].sort((one, two) => peaks.get(two) - peaks.get(one)); // the largest first: those that show have a colour of their own
    const toggles = types.map((type, n) => make("button", { type: "button", "aria-pressed": String(!state.hidden.includes(type)),
      onclick: () => go({ hide: state.hidden.includes(type) ? state.hidden.filter((one) => one !== type) : [...state.hidden, type] }, true) }, ...legend(kindOf(type), n)));
    const shares = make("input", { type: "checkbox", checked: state.shares, "aria-label": "As shares", onchange: () => go({ shares: state.shares ? null : 1 }, true) });
    const series = types.map((type, n) => [type, n, found.rows.filter((row) => row[0] === type)]).filter(([type]) => !state.hidden.includes(type))
      .map(([type, n, rows]) => ({ label: kindOf(type), ink: inkOf(n), times: rows.map((row) => row[1]), texts: rows.map((row) => row[2]),
        values: rows.map(([, time, total]) => (state.shares && total !== null ? value(total) / (sums.get(time) || 1) : value(total))) }));
    return [make("div", { class: "tools", role: "group", "aria-label": "Account types; press one to hide it" }, ...toggles, make("label", { class: "check" }, shares, " As shares"),
      make("span", { class: "note" }, "Click a type to hide it.")),
      ...plot(series, { label: `${state.shares ? "Shares" : "Totals"} by account type`, style: state.shares ? "percent" : undefined }), sheet("Totals by type", found, ranged())];
  },
  async flows() {
    const { flows, freq } = await get("flows", [asset(), ...bounds(preset())]);
    return flowParts(`Flows per ${freq}`, flows, ranged());
  },
  async movers() {
    return [sheet("Movers", (await get("movers", [asset(), ...bounds(preset())])).movers, ranged())];
  },
  async account() {
    const key = state.focus ?? state.accounts[0];
    if (!key) return [make("p", { class: "note" }, "Add an account above to see its page.")];
    const range = isFrozen ? "ALL" : state.range, of = [["account", key], ...bounds(range)];
    const [found, listing] = await Promise.all([get("account", of), get("rows", [...of, ["page", String(state.page)]])]);
    const one = account(key), ids = [["type", one.type], ["party", one.party], ["market", one.market || "none"], ["asset", one.asset]];
    const turn = (by, text, hidden) => make("button", { type: "button", hidden, onclick: () => go({ page: state.page + by }) }, text);
    return [make("h3", {}, one.label), make("dl", { class: "ids" }, ...ids.map(([name, text]) => make("div", {}, make("dt", {}, name), make("dd", {}, text)))),
      make("p", ranged(range).note && { class: "note" }, ranged(range).note), facts(found.summary), ...flowParts("Flows and average per period", found.periods),
      sheet("Rows", listing.rows, { note: `Newest first${listing.pages > 1 ? `; part ${state.page + 1} of ${listing.pages} of all ${count(listing.count)} rows` : ""}.` }),
      make("div", { class: "tools" }, turn(-1, "Newer rows", state.page < 1), turn(1, "Older rows", state.page + 1 >= listing.pages))];
  },
  async notes() {
    const { coverage, limits } = await get("notes");
    return coverage ? [sheet("Coverage", coverage), ...limitParts(limits)] : [make("p", { class: "note" }, "Only an archive has coverage and network limits.")];
  },
};

export const drawPanel = () => { for (const run of draws) run(); };

export const showPanel = async () => {
  const { asset: one, tab, when, focus, page, units, hidden, shares, range, accounts } = state;
  const wanted = JSON.stringify([one.id, tab, when, focus, page, units, hidden, shares, preset(range), tab === "account" && !focus ? accounts : 0]);
  if (wanted === inPanel) return;
  inPanel = wanted;
  for (const button of at("tabs").children) {
    button.setAttribute("aria-selected", String(button.dataset.tab === tab));
    button.tabIndex = button.dataset.tab === tab ? 0 : -1;
  }
  at("panel").setAttribute("aria-labelledby", `tab-${tab}`);
  const parts = await PANELS[tab]().catch((error) => [make("p", { class: "note", role: "alert" }, error.message)]);
  if (inPanel !== wanted) return;
  draws = parts.filter((part) => typeof part === "function");
  refill(at("panel"), parts.filter((part) => typeof part !== "function"));
  drawPanel();
};
