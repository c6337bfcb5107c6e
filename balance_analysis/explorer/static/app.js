// The page: what is shown is told by the address, and every change of it goes there first.
import { COLOURS, draw } from "./chart.js";
import { get, thaw, told } from "./data.js";
import { table } from "./table.js";
import { account, amount, count, make, micros, moment, unknown } from "./text.js";

const DAY = 86400e6, MOST = 8, FIRST = 3;
const RANGES = { "1D": DAY, "1W": 7 * DAY, "1M": 30 * DAY, "3M": 91 * DAY, ALL: Infinity };
const TABS = { holders: "Holders", totals: "Totals", flows: "Flows", movers: "Movers", account: "Account", notes: "Coverage and limits" };
const at = (id) => document.getElementById(id);

let about, isFrozen, listed = [], state, chart, other, lines = [], last = 0;

let address = null; // of a page in a notebook, which can't have one of its own

const read = () => {
  const given = new URLSearchParams((address ?? location.hash).slice(1));
  const asset = about.assets.find(({ id }) => id === given.get("asset")) ?? about.assets[0];
  const [from, to] = (given.get("range") ?? "").split("..").map(Number);
  return {
    asset, accounts: given.getAll("account").slice(0, MOST), chosen: given.has("account") || given.has("none"),
    range: from < to ? [from, to] : given.get("range") in RANGES ? given.get("range") : "ALL",
    log: given.has("log"), units: given.get("units") ?? "", theme: given.get("theme") ?? "",
    tab: given.get("tab") in TABS ? given.get("tab") : "holders", when: Number(given.get("at")) || null,
    focus: given.get("focus"), page: Number(given.get("page")) || 0, hidden: given.getAll("hide"), shares: given.has("shares"),
  };
};

/** Change what is shown: the address has it, so that it can be sent and gone back to. */
const go = (change, replace = false) => {
  const next = { ...state, ...change }, given = new URLSearchParams();
  if (next.asset && next.asset !== about.assets[0]) given.set("asset", next.asset.id);
  for (const key of next.accounts) given.append("account", key);
  if (!next.accounts.length && next.chosen) given.set("none", "1");
  if (next.range !== "ALL") given.set("range", Array.isArray(next.range) ? next.range.map(Math.round).join("..") : next.range);
  for (const name of ["log", "shares"]) if (next[name]) given.set(name, "1");
  for (const name of ["units", "theme", "focus", "page"]) if (next[name]) given.set(name, next[name]);
  if (next.tab !== "holders") given.set("tab", next.tab);
  if (next.when) given.set("at", next.when);
  for (const name of next.hidden) given.append("hide", name);
  try {
    history[replace ? "replaceState" : "pushState"](null, "", `#${given}`);
  } catch {
    address = `#${given}`;
  }
  show();
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
const decimals = () => (state.units ? 0 : state.asset.decimals ?? 0);
const unit = () => (state.asset.decimals === null || state.units ? `${state.asset.label}, smallest units` : state.asset.label);
const value = (text) => (text === null ? null : Number(text) / 10 ** decimals());
const zoom = (from, to) => {
  const length = Math.min(Math.max(to - from, 1000), about.end - about.start + DAY);
  const start = Math.min(Math.max(from, about.start - DAY / 2), about.end);
  if (start <= about.start && start + length >= about.end) return go({ range: "ALL" }, true);
  go({ range: [Math.max(0, start), start + length] }, true);
};
const settled = (run, wait) => {
  let timer;
  return (...given) => { clearTimeout(timer); timer = setTimeout(() => run(...given), wait); };
};

const fail = (box) => (error) => {
  if (error.name !== "AbortError") box.replaceChildren(make("p", { class: "note", role: "alert" }, error.message));
};

const showHead = () => {
  document.documentElement.dataset.theme = state.theme;
  document.title = at("title").textContent = about.name;
  at("interval").textContent = about.start < about.end ? `${moment(about.start)} to ${moment(about.end)} UTC` : "There is nothing in it yet.";
  at("asset").replaceChildren(...about.assets.map(({ id, label, name }) =>
    make("option", { value: id, selected: id === state.asset?.id }, name ? `${label} – ${name}` : label)));
  at("units").value = state.units;
  at("theme").value = state.theme;
  at("log").checked = state.log;
  for (const button of at("ranges").children) button.setAttribute("aria-pressed", button.textContent === state.range);
  const [start, end] = span(), hit = about.gaps.filter(([from, to]) => from < end && to > start);
  const named = hit.slice(0, 3).map(([from, to]) => `${moment(from)} to ${moment(to)}`).join("; ");
  at("notice").hidden = !hit.length && about.proven;
  at("notice").textContent = hit.length
    ? `Not known to be complete: ${named}${hit.length > 3 ? `; ${hit.length - 3} more` : ""}. Balances that may have changed there are unknown.`
    : "Nothing tells whether rows are missing.";
};

const showChips = () => {
  at("chips").replaceChildren(...state.accounts.map((key, n) => {
    const { label, party, market } = account(key);
    const swatch = make("span", { class: `swatch s${n}`, "aria-hidden": "true" });
    const title = [party, market].filter(Boolean).join(" · ");
    return make("li", {}, swatch,
      make("button", { type: "button", class: "link", title, onclick: () => open(key) }, label),
      make("button", { type: "button", class: "remove", "aria-label": `Remove ${label}`,
        onclick: () => go({ accounts: state.accounts.filter((one) => one !== key), chosen: true }) }, "×"));
  }));
};

const getLines = async () => {
  if (isFrozen) {
    const found = await Promise.allSettled(state.accounts.map((key) => get("series", [["account", key]])));
    return found.map(({ value: one }, n) => one?.series[0] ?? { key: state.accounts[n], times: [], balances: [], rows: 0, missing: true });
  }
  if (!state.accounts.length) return [];
  const width = ["width", String(Math.min(Math.max(at("chart").clientWidth, 100), 4000))];
  return (await get("series", [...state.accounts.map((key) => ["account", key]), ...bounds(), width])).series;
};

const plot = () => {
  const [start, end] = span();
  chart?.destroy();
  const series = lines.map((line, n) => ({
    label: account(line.key).label, colour: COLOURS[n], times: line.times, values: line.balances.map(value),
  }));
  const label = `Balances in ${unit()} of ${lines.length} accounts from ${moment(Math.round(start))} to ${moment(Math.round(end))} UTC`;
  chart = draw(at("chart"), { series, start, end, gaps: about.gaps, until: about.end, log: state.log, label,
    onrange: zoom, onhover: (time) => tell(Math.round(time)) });
  tell(Math.round(Math.min(last || end, end, about.end - 1)));
};

const showChart = async () => {
  showChips();
  if (lines.length && lines.map(({ key }) => key).join() === state.accounts.join()) plot(); // at once, then finer
  lines = await getLines();
  plot();
};

/** Tell what was held at a moment: of a thinned line, what its last drawn row says. */
const tell = (time) => {
  last = time;
  const rows = lines.map((line, n) => {
    const place = line.times.findLastIndex((one) => one <= time);
    const held = place < 0 || time >= about.end ? null : line.balances[place];
    const isRow = place >= 0 && line.times[place] === time, thinned = line.rows > line.times.length;
    const how = line.missing ? "not in this page" : held === null ? "" : thinned ? `row of ${moment(line.times[place])}; zoom in for all ${count(line.rows)} rows`
      : place === 0 && line.opening ? "opening" : isRow ? "observed" : `carried since ${moment(line.times[place])}`;
    return make("tr", {}, make("th", { scope: "row" }, make("span", { class: `swatch s${n}`, "aria-hidden": "true" }), account(line.key).label),
      make("td", { class: "n" }, held === null ? unknown : amount(held, decimals())), make("td", { class: "how" }, how));
  });
  at("readout").replaceChildren(make("table", {}, make("caption", {}, `${moment(time)} UTC, in ${unit()}`), make("tbody", {}, ...rows)));
};

const open = (key) => go({ tab: "account", focus: key, page: 0,
  accounts: state.accounts.includes(key) ? state.accounts : [...state.accounts, key].slice(-MOST), chosen: true });

const sheet = (caption, content, options = {}) => table(`${caption}${content.columns.some(({ kind }) => kind === "amount") ? `, in ${unit()}` : ""}`,
  content, { decimals: decimals(), choose: open, name: caption.toLowerCase().replaceAll(/\W+/g, "-"), ...options });
const column = (content, name) => content.rows.map((row) => row[content.columns.findIndex((one) => one.name === name)]);
const asset = () => ["asset", state.asset.id];
const plotOther = (box, options) => {
  const [start, end] = span(preset());
  other = draw(box, { start, end, gaps: about.gaps, until: about.end, log: state.log && !options.bars, ...options });
};

const PANELS = {
  async holders() {
    const when = state.when ? [["at", String(state.when)]] : [];
    const found = await get("holders", [asset(), ...when]);
    const pick = isFrozen
      ? make("select", {}, ...[["", "the end"], ...Object.keys(RANGES).map((name) => [String(span(name)[0]), moment(span(name)[0])])]
        .map(([time, text]) => make("option", { value: time, selected: time === String(state.when ?? "") }, text)))
      : make("input", { type: "datetime-local", step: "1", value: moment(state.when ?? about.end - 1).slice(0, 19).replace(" ", "T") });
    pick.addEventListener("change", () => go({ when: (isFrozen ? Number(pick.value) : micros(pick.value)) || null }));
    const rest = found.accounts - found.holders.rows.length;
    const note = rest > 0 ? `The largest ${count(found.holders.rows.length)} of ${count(found.accounts)} accounts.` : undefined;
    return [make("label", { class: "when" }, "Held at (UTC) ", pick), sheet("Holders", found.holders, { note }), sheet("Concentration", found.concentration)];
  },
  async totals() {
    const found = (await get("totals", [asset(), ...bounds(preset())])).totals;
    const peaks = new Map(); // the largest first, so that those that show have a colour of their own
    for (const [type, , total] of found.rows) peaks.set(type, Math.max(peaks.get(type) ?? 0, value(total) ?? 0));
    const types = [...peaks.keys()].sort((one, two) => peaks.get(two) - peaks.get(one));
    const each = types.map((type, n) => ({ type, label: type.replace("ACCOUNT_TYPE_", "").replaceAll("_", " ").toLowerCase(), colour: COLOURS[n % 8],
      dash: n < 8 ? undefined : [6, 3], rows: found.rows.filter((row) => row[0] === type) }));
    const sums = new Map();
    for (const [, time, total] of found.rows) sums.set(time, (sums.get(time) ?? 0) + (value(total) ?? 0));
    const shownOnes = each.filter(({ type }) => !state.hidden.includes(type));
    const toggles = each.map(({ type, label }, n) => make("button", { type: "button", "aria-pressed": String(!state.hidden.includes(type)),
      onclick: () => go({ hidden: state.hidden.includes(type) ? state.hidden.filter((one) => one !== type) : [...state.hidden, type] }, true) },
    make("span", { class: `swatch s${n % 8}${n < 8 ? "" : " dashed"}`, "aria-hidden": "true" }), label));
    const shares = make("button", { type: "button", "aria-pressed": String(state.shares), onclick: () => go({ shares: !state.shares }, true) }, "Shares");
    const box = make("div", { class: "chart" });
    const series = shownOnes.map(({ label, colour: name, dash, rows }) => ({ label, colour: name, dash, times: rows.map((row) => row[1]),
      values: rows.map(([, time, total]) => (state.shares && total !== null ? value(total) / (sums.get(time) || 1) : value(total))) }));
    const label = `${state.shares ? "Shares" : "Totals"} by account type`;
    return [make("div", { class: "tools", role: "group", "aria-label": "Account types" }, ...toggles, shares), box, sheet("Totals by type", found),
      () => plotOther(box, { series, label })];
  },
  async flows() {
    const { flows, freq } = await get("flows", [asset(), ...bounds(preset())]);
    return flowParts(`Flows per ${freq}`, flows);
  },
  async movers() {
    return [sheet("Movers between the ends of the range", (await get("movers", [asset(), ...bounds(preset())])).movers)];
  },
  async account() {
    const key = state.focus ?? state.accounts[0];
    if (!key) return [make("p", { class: "note" }, "Add an account above to see its page.")];
    const range = isFrozen ? "ALL" : state.range, of = [["account", key], ...bounds(range)];
    const [found, listing] = await Promise.all([get("account", of), get("rows", [...of, ["page", String(state.page)]])]);
    const one = account(key), facts = found.summary.columns.map(({ name, kind }, n) => [name, found.summary.rows[0]?.[n] ?? null, kind]);
    const turn = (by, text, hidden) => make("button", { type: "button", hidden, onclick: () => go({ page: state.page + by }) }, text);
    const ids = [["type", one.type], ["party", one.party], ["market", one.market || "none"], ["asset", one.asset]];
    return [make("h3", {}, one.label), make("dl", { class: "ids" }, ...ids.map(([name, text]) => make("div", {}, make("dt", {}, name), make("dd", {}, text)))),
      make("dl", { class: "facts" }, ...facts.map(([name, text, kind]) => make("div", {}, make("dt", {}, name.replaceAll("_", " ")), make("dd", {}, fact(text, kind))))),
      ...flowParts(`Flows and average per period`, found.periods),
      sheet("Rows", listing.rows, { note: `${count(listing.count)} rows, newest first; page ${state.page + 1} of ${Math.max(listing.pages, 1)}.` }),
      make("div", { class: "tools" }, turn(-1, "Newer", state.page < 1), turn(1, "Older", state.page + 1 >= listing.pages))];
  },
  async notes() {
    const found = await get("notes");
    const parts = ["coverage", "limits"].filter((name) => found[name]).map((name) => sheet(name === "limits" ? "Network limits" : "Coverage", found[name]));
    return parts.length ? parts : [make("p", { class: "note" }, "Only an archive has coverage and network limits.")];
  },
};
const fact = (text, kind) => (kind === "amount" ? amount(text, decimals()) : kind === "moment" ? moment(text) : kind === "ratio"
  ? (text === null ? unknown : `${(100 * text).toFixed(4)} %`) : count(text));
const flowParts = (caption, content) => {
  const box = make("div", { class: "chart" }), times = column(content, "start");
  const series = ["inflow", "outflow"].map((name, n) => ({ label: name, colour: COLOURS[n], times,
    values: column(content, name).map((text) => (text === null ? null : (n ? -1 : 1) * value(text))) }));
  const legend = series.map(({ label }, n) => make("span", {}, make("span", { class: `swatch s${n}`, "aria-hidden": "true" }), label));
  return [make("p", { class: "tools note" }, ...legend), box, sheet(caption, content), () => plotOther(box, { series, label: `${caption}: inflow above, outflow below`, bars: true })];
};

const showPanel = async () => {
  const tab = state.tab;
  for (const button of at("tabs").children) {
    const isOn = button.dataset.tab === tab;
    button.setAttribute("aria-selected", String(isOn));
    button.tabIndex = isOn ? 0 : -1;
  }
  at("panel").setAttribute("aria-labelledby", `tab-${tab}`);
  const parts = await PANELS[tab]();
  if (state.tab !== tab) return;
  other?.destroy();
  other = null;
  at("panel").replaceChildren(...parts.filter((part) => typeof part !== "function"));
  for (const part of parts) if (typeof part === "function") part();
};

const show = () => {
  const old = state;
  state = read();
  showHead();
  if (!state.asset) return at("panel").replaceChildren(make("p", { class: "note" }, "There is no balance change yet."));
  if (!state.chosen) state.accounts = first();
  showChart().catch(fail(at("readout")));
  const part = ({ asset: one, tab, when, focus, page, units, hidden, shares, theme, range, log, accounts }) =>
    JSON.stringify([one?.id, tab, when, focus, page, units, hidden, shares, theme, log, preset(range), tab === "account" && !focus ? accounts : 0]);
  if (!old || old.asset?.id !== state.asset.id) search("");
  if (!old || part(old) !== part(state)) showPanel().catch(fail(at("panel")));
};

/** Without a choice the chart shows the largest holders: people, beside whom a treasury would hide all else. */
const first = () => {
  const keys = listed.map(([key]) => key).filter((key) => account(key).asset === state.asset.id);
  const wanted = told().first.filter((key) => account(key).asset === state.asset.id);
  if (wanted.length) return wanted.slice(0, MOST);
  return [...new Set([...keys.filter((key) => account(key).party !== "network"), ...keys])].slice(0, FIRST);
};

const search = async (text) => {
  try {
    const found = await get("accounts", isFrozen ? [asset()] : [asset(), ["text", text]]);
    const wanted = text.toLowerCase();
    const matches = ([key]) => { const { words, type, party, market } = account(key); return `${words} ${type} ${party} ${market}`.toLowerCase().includes(wanted); };
    const rows = found.accounts.rows.filter(matches);
    if (!text) {
      listed = rows;
      if (!state.chosen && !state.accounts.length) {
        state.accounts = first();
        showChart().catch(fail(at("readout")));
        if (state.tab === "account") showPanel().catch(fail(at("panel")));
      }
    }
    return rows.slice(0, 30);
  } catch (error) {
    fail(at("readout"))(error);
    return [];
  }
};

const suggest = settled(async () => {
  const text = at("find").value.trim();
  const others = text ? about.assets.filter(({ id, label, name }) => `${label} ${name} ${id}`.toLowerCase().includes(text.toLowerCase())) : [];
  const options = [...others.filter(({ id }) => id !== state.asset.id).map((one) => [`asset ${one.label}`, one.id, () => go({ asset: one, accounts: [], chosen: false, focus: null, hidden: [] })]),
    ...(await search(text)).map(([key, balance]) => [account(key).label, `${amount(balance, decimals())} ${unit()}`, () =>
      go({ accounts: [...new Set([...state.accounts, key])].slice(-MOST), chosen: true })])];
  if (text && !options.length) options.push([`No account of ${state.asset.label} has “${text}” in its ids or type`, "", () => {}]);
  at("found").replaceChildren(...options.map(([label, more, run], n) => make("li", { role: "option", id: `found-${n}`, "aria-selected": "false",
    onmousedown: (event) => { event.preventDefault(); pick(run); } }, make("span", {}, label), make("small", {}, more))));
  at("found").picks = options.map(([, , run]) => run);
  at("found").hidden = !options.length || document.activeElement !== at("find");
  at("find").setAttribute("aria-expanded", String(!at("found").hidden));
}, 80);
const close = () => { at("found").hidden = true; at("find").setAttribute("aria-expanded", "false"); at("find").removeAttribute("aria-activedescendant"); };
const pick = (run) => { at("find").value = ""; close(); run(); };

const keysOfSearch = (event) => {
  const options = [...at("found").children], old = options.findIndex((one) => one.ariaSelected === "true");
  if (event.key === "Escape") return close();
  if (event.key === "Enter" && options.length && !at("found").hidden) return pick(at("found").picks[Math.max(old, 0)]);
  const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!by || !options.length) return;
  event.preventDefault();
  const next = (old + by + options.length + (old < 0 && by < 0)) % options.length;
  options.forEach((one, n) => one.setAttribute("aria-selected", String(n === next)));
  options[next].scrollIntoView({ block: "nearest" });
  at("find").setAttribute("aria-activedescendant", options[next].id);
};

const keysOfChart = (event) => {
  const [start, end] = span(), rows = lines.flatMap(({ times }) => times).sort((a, b) => a - b);
  if (event.key === "ArrowRight") tell(rows.find((time) => time > last && time < end) ?? last);
  else if (event.key === "ArrowLeft") tell(rows.findLast((time) => time < last && time >= start) ?? last);
  else if (event.key === "+") zoom(last - (last - start) * 0.5, last + (end - last) * 0.5);
  else if (event.key === "-") zoom(last - (last - start) * 2, last + (end - last) * 2);
  else return;
  event.preventDefault();
};

const keysOfTabs = (event) => {
  const names = Object.keys(TABS), by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!by) return;
  go({ tab: names[(names.indexOf(state.tab) + by + names.length) % names.length] });
  at(`tab-${state.tab}`).focus();
};

const watch = () => setInterval(async () => {
  const now = await get("version").catch(() => about);
  at("stale").hidden = now.version === about.version;
}, 5000);

const begin = async () => {
  isFrozen = await thaw();
  about = await get("about");
  at("ranges").append(...Object.keys(RANGES).map((name) => make("button", { type: "button", onclick: () => go({ range: name }) }, name)));
  at("tabs").append(...Object.entries(TABS).map(([name, text]) =>
    make("button", { type: "button", role: "tab", id: `tab-${name}`, "data-tab": name, onclick: () => go({ tab: name }) }, text)));
  at("asset").addEventListener("change", ({ target }) =>
    go({ asset: about.assets.find(({ id }) => id === target.value), accounts: [], chosen: false, focus: null, hidden: [] }));
  for (const name of ["units", "theme"]) at(name).addEventListener("change", ({ target }) => go({ [name]: target.value }));
  at("log").addEventListener("change", ({ target }) => go({ log: target.checked }));
  at("find").addEventListener("input", suggest);
  at("find").addEventListener("focus", suggest);
  at("find").addEventListener("blur", close);
  at("find").addEventListener("keydown", keysOfSearch);
  at("chart").addEventListener("keydown", keysOfChart);
  at("tabs").addEventListener("keydown", keysOfTabs);
  at("reload").addEventListener("click", () => location.reload());
  addEventListener("popstate", show);
  addEventListener("resize", settled(() => { plot(); showPanel().catch(fail(at("panel"))); }, 150));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { plot(); showPanel(); });
  if (isFrozen) {
    at("api").hidden = true;
    at("said").append(make("p", { class: "note" }, told().said));
  } else watch();
  show();
};

begin().catch(fail(at("panel")));
