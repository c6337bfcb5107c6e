// The page: what is shown is told by the address, and every change of it goes there first.
import { draw } from "./chart.js";
import { get, thaw, told } from "./data.js";
import { shown, table } from "./table.js";
import { DAY, account, amount, count, isKey, kindOf, make, micros, moment, unknown, words } from "./text.js";

const MOST = 8, FIRST = 3;
const RANGES = { "1D": DAY, "1W": 7 * DAY, "1M": 30 * DAY, "3M": 91 * DAY, ALL: Infinity };
const at = (id) => document.getElementById(id);

let about, isFrozen, state, mark, lines = [], cells = new Map(), last = 0;
let draws = [], running = 0, inChart, inPanel; // of the panel; and what is asked for in either
let address = location.hash; // a page in a notebook can't have one of its own, and a browser takes only so many a second

const read = () => {
  const given = new URLSearchParams(address.slice(1)), whole = (text) => (/^\d{1,16}$/.test(text) ? Number(text) : NaN);
  const one = (name, allowed, otherwise) => (allowed.includes(given.get(name)) ? given.get(name) : otherwise);
  const asset = about.assets.find(({ id }) => id === given.get("asset")) ?? about.assets[0];
  const isOurs = (key) => isKey(key) && account(key).asset === asset?.id;
  const accounts = given.getAll("account").filter(isOurs).slice(0, MOST), [from, to] = (given.get("range") ?? "").split("..").map(whole);
  return {
    asset, accounts, chosen: accounts.length > 0 || given.has("none"),
    range: from < to ? [from, to] : one("range", Object.keys(RANGES), "ALL"),
    log: given.has("log"), units: one("units", ["smallest"], ""), theme: one("theme", ["light", "dark"], ""),
    tab: one("tab", Object.keys(PANELS), "holders"), when: whole(given.get("at")) || null,
    focus: given.getAll("focus").find(isOurs), page: Math.min(whole(given.get("page")) || 0, 1e6), hidden: given.getAll("hide"), shares: given.has("shares"),
  };
};

/** Change what is shown: the address has it, so that it can be sent and gone back to. */
const go = (change, replace = false) => {
  const given = new URLSearchParams(address.slice(1));
  for (const [name, values] of Object.entries({ ...("range" in change && { page: null }), ...change })) {
    given.delete(name);
    for (const each of [values].flat()) if (each) given.append(name, each);
  }
  address = `#${given}`;
  try {
    history[replace ? "replaceState" : "pushState"](null, "", address);
  } catch { /* what is shown counts */ }
  show();
};
const choose = ({ id }) => go({ asset: id, account: null, none: null, focus: null, hide: null, page: null });
const add = (key) => ({ account: [...new Set([...state.accounts, key])].slice(-MOST), none: null });
const open = (key) => {
  go({ tab: "account", focus: key, page: null, ...(state.accounts.includes(key) ? {} : add(key)) });
  at("panel").focus({ preventScroll: true });
  const { top } = at("tabs").getBoundingClientRect();
  if (top < 0 || top > innerHeight * 0.8) at("tabs").scrollIntoView();
};

const span = (range = state.range) => {
  if (Array.isArray(range)) return range;
  return [range === "ALL" ? about.start : Math.max(about.start, about.end - RANGES[range]), about.end];
};
// Frozen tables are of a range that has a button: of the smallest one around what the chart shows.
const preset = (range = state.range) => {
  if (!isFrozen || !Array.isArray(range)) return range;
  return Object.keys(RANGES).find((name) => span(name)[0] <= range[0]) ?? "ALL";
};
const bounds = (range) => [["start", span(range)[0]], ["end", Math.max(...span(range))]].map(([name, value]) => [name, String(Math.round(value))]);
const between = ([from, to]) => [from, to].map((time) => moment(Math.round(time)).replace(/ 00:00:00$/, "")).join(" to ");
const decimals = () => (state.units ? 0 : state.asset.decimals ?? 0);
const unit = () => (state.asset.decimals === null || state.units ? `${state.asset.label}, smallest units` : state.asset.label);
/** Return what colours something of its place among others: of more than there are colours, further ones are dashed. */
const inkOf = (place) => `s${place % 8}${place < 8 ? "" : " dashed"}`;
const value = (text) => (text === null ? null : Number(text) / 10 ** decimals());
const zoom = (from, to) => {
  const grain = to - from > 3600e6 ? 1e6 : 1, length = Math.min(Math.max(to - from, 1000), about.end - about.start + DAY);
  const start = Math.round(Math.min(Math.max(from, about.start - DAY / 2), about.end) / grain) * grain;
  if (start <= about.start && start + length >= about.end) return go({ range: null }, true);
  go({ range: `${Math.max(0, start)}..${start + Math.round(length / grain) * grain}` }, true);
};
const panBy = (part, [start, end] = span()) => zoom(start + part * (end - start), end + part * (end - start));
const zoomBy = (by, centre = (span()[0] + span()[1]) / 2) => zoom(centre - (centre - span()[0]) * by, centre + (span()[1] - centre) * by);
const settled = (run, wait) => {
  let timer;
  return (...given) => { clearTimeout(timer); timer = setTimeout(() => run(...given), wait); };
};

const fail = (error) => {
  if (error.name === "AbortError") return;
  inChart = null;
  at("failed").textContent = error.message;
  at("failed").hidden = false;
};

/** Put new parts into a box, and leave the focus on what it was on, where that is still there. */
const refill = (box, parts) => {
  const name = (one) => one.ariaLabel ?? one.textContent, held = document.activeElement;
  const wanted = box.contains(held) && name(held);
  box.replaceChildren(...parts);
  if (wanted !== false) ([...box.querySelectorAll("button, input, select")].find((one) => name(one) === wanted) ?? box).focus({ preventScroll: true });
};

const showHead = () => {
  const [start, end] = span(), hit = about.gaps.filter(([from, to]) => from < end && to > start);
  document.documentElement.dataset.theme = state.theme;
  document.title = at("title").textContent = about.name;
  at("chart-h").textContent = state.asset ? `${state.asset.label} balances` : "Balances";
  at("interval").textContent = about.start < about.end ? `${between([about.start, about.end])} UTC` : "There is nothing in it yet. Once something is, this page offers to reload.";
  for (const part of document.querySelectorAll(".card, .choices")) part.hidden = !state.asset;
  at("asset").replaceChildren(...about.assets.map(({ id, label, name }) => make("option", { value: id, selected: id === state.asset?.id }, name ? `${label} – ${name}` : label)));
  for (const name of ["units", "theme"]) at(name).value = state[name];
  [start, end].forEach((time, n) => { at(["from", "to"][n]).value = moment(Math.round(time)); });
  at("log").checked = state.log;
  for (const button of at("ranges").children) button.setAttribute("aria-pressed", button.textContent === state.range);
  at("notice").hidden = isFrozen || (!hit.length && about.proven); // a frozen page says it above
  at("notice").textContent = hit.length
    ? `Not known to be complete: ${hit.slice(0, 3).map(between).join("; ")}${hit.length > 3 ? `; ${hit.length - 3} more` : ""}. Balances that may have changed there are unknown.`
    : "Nothing tells whether rows are missing.";
};

const showLegend = () => {
  cells = new Map(state.accounts.map((key) => [key, [make("td", { class: "n" }), make("td", { class: "how" })]]));
  const rows = state.accounts.map((key, n) => {
    const { label, ids } = account(key), swatch = make("span", { class: `swatch ${inkOf(n)}`, "aria-hidden": "true" });
    const remove = () => go({ account: state.accounts.filter((one) => one !== key), none: "1" });
    return make("tr", {}, make("th", { scope: "row" }, swatch, make("button", { type: "button", class: "link", title: ids, onclick: () => open(key) }, label)),
      ...cells.get(key), make("td", {}, make("button", { type: "button", class: "remove", "aria-label": `Remove ${label}`, onclick: remove }, "×")));
  });
  const text = state.chosen && !rows.length ? "No account is chosen. Add one above." : "";
  refill(at("readout"), [make("table", {}, make("caption", { id: "moment" }, text), make("tbody", {}, ...rows))]);
};

/** Say what an account held at a moment, and how that is known; what the drawn rows don't tell for sure, the service does once the pointer rests. */
const put = ({ key, times, balances, rows, opening, missing, from, to }, time) => {
  const place = times.findLastIndex((one) => one <= time), since = times[place], held = balances[place] ?? null;
  const isSure = time >= from && time < to && (rows === times.length || since === time || place === times.length - 1);
  const [text, how] = missing ? [unknown, "not in this page"] : time >= about.end ? [unknown, "after the end of the data"]
    : !isSure ? ["…", isFrozen ? "only some of its rows are in this page" : "looking it up"] : place < 0 ? [unknown, "before its first row"]
    : held === null ? [unknown, `since ${moment(since)}`]
    : [amount(held, decimals()), place === 0 && opening ? "opening" : since === time ? "observed" : `carried since ${moment(since)}`];
  cells.get(key)?.forEach((cell, n) => { cell.textContent = [text, how][n]; });
  return text === "…";
};
const tell = (time) => {
  last = time;
  if (lines.length) at("moment").textContent = `${moment(time)} UTC, in ${unit()}`;
  if (lines.filter((line) => put(line, time)).length && !isFrozen) ask(time);
};
const ask = settled(async (time) => {
  const found = await getLines([time, time + 1], "1", "moment").catch(fail);
  if (time === last) for (const line of found ?? []) put(line, time);
}, 60);

const getLines = async ([from, to], width, as) => {
  const keys = state.accounts, ours = keys.map((key) => ["account", key]), none = { series: [{ times: [], balances: [], rows: 0, missing: true }] };
  const found = isFrozen ? (await Promise.all(ours.map((one) => get("series", [one]).catch(() => none)))).map(({ series: [line] }) => line)
    : keys.length ? (await get("series", [...ours, ["start", String(from)], ["end", String(to)], ["width", width]], as)).series : [];
  return found.map((line, n) => ({ ...line, key: keys[n], ...(isFrozen ? { from: -Infinity, to: Infinity } : { from, to }) }));
};

const redraw = () => {
  const [start, end] = span();
  lines = lines.filter(({ key }) => state.accounts.includes(key));
  const ends = lines.map(({ key, balances }) => `${account(key).label}: ${[0, -1].map((n) => amount(balances.at(n) ?? null, decimals())).join(" at first, ")} at last`);
  mark = draw(at("chart"), { start, end, gaps: about.gaps, until: about.end, log: state.log, onrange: zoom, onwheel: zoomBy, onpan: panBy, onhover: (time) => tell(Math.round(time)),
    label: `Balances in ${unit()}, ${between([start, end])} UTC. ${ends.join("; ")}`,
    series: lines.map(({ key, times, balances, to }) => ({ to, ink: inkOf(state.accounts.indexOf(key)), times, values: balances.map(value) })) });
  tell(Math.round(Math.min(last || end, end, about.end - 1)));
  for (const run of draws) run();
};

/** Choose the largest holders: people, beside whom a treasury would hide all else. */
const chooseFirst = async () => {
  const asset = state.asset.id, keys = (await find("", "first")).map(([key]) => key), people = keys.filter((key) => account(key).party !== "network");
  const given = told().first.filter((key) => account(key).asset === asset).slice(0, MOST), wanted = given.length ? given : [...new Set([...people, ...keys])].slice(0, FIRST);
  if (state.asset.id === asset && !state.chosen) go({ asset, account: wanted, none: wanted.length ? null : "1" }, true);
};

const showChart = async () => {
  const wanted = JSON.stringify([state.accounts, span()]);
  if (!state.chosen) return chooseFirst();
  if (inChart === wanted) return;
  inChart = wanted;
  lines = await getLines(span().map(Math.round), String(Math.min(Math.max(at("chart").clientWidth, 100), 4000)));
  at("failed").hidden = true;
  redraw();
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

const showPanel = async () => {
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
  redraw();
};

const refresh = async () => {
  running += 1;
  await Promise.all([showChart().catch(fail), showPanel().catch(fail)]);
  running -= 1;
  at("main").ariaBusy = String(running > 0);
};
const soon = settled(refresh, 120);

const show = () => {
  const old = state;
  state = read();
  showHead();
  at("main").ariaBusy = String(Boolean(state.asset));
  if (!state.asset) return;
  if (old?.accounts.join() !== state.accounts.join()) showLegend();
  redraw();
  (old && Array.isArray(state.range) && old.range !== state.range ? soon : refresh)();
};

const find = async (text, as) => {
  const { rows } = (await get("accounts", isFrozen ? [asset()] : [asset(), ["text", text]], as)).accounts;
  return isFrozen ? rows.filter(([key]) => account(key).text.includes(text.toLowerCase())) : rows;
};

const suggest = settled(async () => {
  const text = at("find").value.trim(), has = (given) => given.toLowerCase().includes(text.toLowerCase());
  const assets = about.assets.filter((one) => text && one.id !== state.asset.id && has(`${one.label} ${one.name} ${one.id}`));
  const accounts = (await find(text, "find").catch((error) => fail(error) ?? [])).slice(0, 30);
  const options = [...assets.map((one) => [`asset ${one.label}`, one.id, () => choose(one)]),
    ...accounts.map(([key, balance]) => [account(key).label, `${amount(balance, decimals())} ${unit()}`, () => go(add(key))])];
  if (text && !options.length) options.push([`No account of ${state.asset.label} has “${text}” in its ids or type`, "", () => {}]);
  at("found").replaceChildren(...options.map(([label, more, run], n) => make("li", { role: "option", id: `found-${n}`, "aria-selected": "false",
    onmousedown: (event) => { event.preventDefault(); pick(run); } }, make("span", {}, label), make("small", {}, more))));
  at("found").hidden = !options.length || document.activeElement !== at("find");
  at("find").setAttribute("aria-expanded", String(!at("found").hidden));
}, 80);
const close = () => { at("found").hidden = true; at("find").setAttribute("aria-expanded", "false"); at("find").removeAttribute("aria-activedescendant"); };
const pick = (run) => { at("find").value = ""; close(); run(); };

const keysOfSearch = (event) => {
  const options = [...at("found").children], old = options.findIndex((one) => one.ariaSelected === "true");
  if (event.key === "Escape") return close();
  if (event.key === "Enter" && options.length && !at("found").hidden) return options[Math.max(old, 0)].dispatchEvent(new Event("mousedown"));
  const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!by || !options.length) return;
  event.preventDefault();
  const next = (old + by + options.length + (old < 0 && by < 0)) % options.length;
  options.forEach((one, n) => one.setAttribute("aria-selected", String(n === next)));
  options[next].scrollIntoView({ block: "nearest" });
  at("find").setAttribute("aria-activedescendant", options[next].id);
};

const keysOfChart = (event) => {
  const [start, end] = span(), rows = lines.flatMap(({ times }) => times).sort((a, b) => a - b), by = { "+": 0.5, "-": 2 }[event.key], pan = { PageUp: -0.5, PageDown: 0.5 }[event.key];
  if (by) zoomBy(by, last);
  else if (pan) panBy(pan);
  else if (event.key === "0") go({ range: null });
  else if (event.key === "ArrowRight") tell(rows.find((time) => time > last && time < end) ?? last);
  else if (event.key === "ArrowLeft") tell(rows.findLast((time) => time < last && time >= start) ?? last);
  else return;
  event.preventDefault();
  mark(last);
};

const keysOfTabs = ({ key }) => {
  const tabs = [...at("tabs").children], by = { ArrowRight: 1, ArrowLeft: -1 }[key] ?? 0;
  const next = tabs[(tabs.indexOf(document.activeElement) + by + tabs.length) % tabs.length];
  if (by) go({ tab: next.dataset.tab });
  next.focus();
};

const listen = () => {
  for (const name of ["units", "theme"]) at(name).addEventListener("change", ({ target }) => go({ [name]: target.value }));
  const setRange = ({ target }) => {
    const [from, to] = [micros(at("from").value), micros(at("to").value)];
    target.ariaInvalid = String(!(from < to));
    if (from < to) zoom(from, to);
  };
  const paint = (theme) => { document.documentElement.dataset.theme = theme; redraw(); };
  for (const [target, event, run] of [[at("asset"), "change", ({ target: { value: id } }) => choose(about.assets.find((one) => one.id === id))],
    [at("log"), "change", ({ target }) => go({ log: target.checked && 1 })],
    [at("from"), "change", setRange], [at("to"), "change", setRange], [at("in"), "click", () => zoomBy(0.5)], [at("out"), "click", () => zoomBy(2)],
    [at("find"), "input", () => { close(); suggest(); }], [at("find"), "focus", suggest], [at("find"), "blur", close], [at("find"), "keydown", keysOfSearch],
    [at("chart"), "keydown", keysOfChart], [at("chart"), "dblclick", () => go({ range: null })], [at("tabs"), "keydown", keysOfTabs],
    [at("ranges"), "click", ({ target: { textContent: range } }) => Object.hasOwn(RANGES, range) && go({ range: range === "ALL" ? null : range })],
    [at("tabs"), "click", ({ target: { dataset: { tab } } }) => tab && go({ tab })],
    [at("reload"), "click", () => location.reload()], [window, "popstate", () => { address = location.hash; show(); }], [window, "resize", settled(redraw, 150)],
    [window, "beforeprint", () => paint("paper")], [window, "afterprint", () => paint(state.theme)]]) target.addEventListener(event, run);
  addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target.closest("input, select")) return;
    event.preventDefault();
    at("find").focus();
  });
};

const begin = async () => {
  at("main").ariaBusy = "true";
  isFrozen = await thaw();
  about = await get("about");
  listen();
  at("api").hidden = isFrozen;
  if (isFrozen) at("said").append(make("p", { class: "note" }, told().said));
  else setInterval(async () => { at("stale").hidden = (await get("version").catch(() => about)).version === about.version; }, 5000);
  show();
};

begin().catch(fail);
