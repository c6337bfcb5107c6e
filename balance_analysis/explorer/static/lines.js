// The chart of the chosen accounts, and what they held under the pointer.
import { MOST, about, between, go, inkOf, isFrozen, panBy, span, state, unit, value, when, written, zoom, zoomBy } from "./address.js";
import { draw } from "./chart.js";
import { baseOf, differenceOf, indexed, less } from "./compare.js";
import { get, told } from "./data.js";
import { at, fail, linked, make, refill, settled } from "./dom.js";
import { explain, open } from "./panels.js";
import { find } from "./search.js";
import { account, unknown } from "./text.js";

const FIRST = 3, NONE = "No account is chosen.";
let mark = () => {}, lines = [], cells = new Map(), putAs = new Map(), bases = new Map(), last = 0, inChart; // what is asked for in it

export const isDifference = () => state.as === "difference" && state.accounts.length === 2;
const nameOf = (key) => account(key).label;
const pairName = () => state.accounts.map(nameOf).join(" less ");
/** Return what is drawn, in a sentence, where it isn't balances. */
const drawnAs = () => {
  const isCut = state.log && !isDifference() && lines.some(({ balances }) => balances.some((one) => one !== null && value(one) <= 0));
  const kind = state.as === "index" ? "An index: each line is 100 where it is first above 0 in this range." : isDifference() ? `A difference: ${pairName()}, unknown where one of them is.`
    : state.as && state.chosen ? "A difference is of two accounts. Choose two: until then, their balances are shown." : "";
  return `${kind}${isCut ? " A logarithmic scale has no 0: a line is left out while nothing is held." : ""}`.trim();
};

export const showLegend = () => {
  cells = new Map(state.accounts.map((key) => [key, [linked("", isFrozen ? undefined : () => explain(key, last)) || make("span"), make("span")]]));
  const rows = state.accounts.map((key, n) => {
    const { label, ids } = account(key), swatch = make("span", { class: `swatch ${inkOf(n)}`, "aria-hidden": "true" });
    const remove = () => go({ account: state.accounts.filter((one) => one !== key), none: "1" });
    return make("tr", {}, make("th", { scope: "row" }, swatch, make("button", { type: "button", class: "link", title: ids, onclick: () => open(key) }, label)),
      ...cells.get(key).map((one, place) => make("td", { class: place ? "how" : "n" }, one)), make("td", {}, make("button", { type: "button", class: "remove", "aria-label": `Remove ${label}`, onclick: remove }, "×")));
  });
  const showLargest = make("button", { type: "button", onclick: () => go({ account: null, none: null }) }, "Show the largest");
  refill(at("readout"), state.chosen && !rows.length ? [make("p", { class: "tools note" }, "Add an account above, or", showLargest)]
    : [make("table", {}, make("caption", { id: "moment" }), make("tbody", {}, ...rows))]);
};

/** Say what an account held at a moment, and how that is known; what the drawn rows don't tell for sure, the service does once the pointer rests. */
const put = ({ key, times, balances, rows, opening, missing, from, to }, time) => {
  const place = times.findLastIndex((one) => one <= time), since = times[place], held = balances[place] ?? null;
  const isSure = time >= from && time < to && (rows === times.length || since === time || place === times.length - 1);
  const [text, how] = missing ? [unknown, "not in this page"] : time >= about.end ? [unknown, "after the end of the data"]
    : !isSure ? ["…", isFrozen ? "only some of its rows are in this page" : "looking it up"] : place < 0 ? [unknown, times.length ? "before its first row" : "no row of it up to then"]
    : held === null ? [unknown, `since ${when(since)}`]
    : [written(held), place === 0 && opening ? "since before the data begins" : since === time ? "changed then" : `since ${when(since)}`];
  putAs.set(key, { text, held: text === unknown || text === "…" ? null : held });
  cells.get(key)?.forEach((cell, n) => { cell.textContent = [text, state.as === "index" ? `${how}; index ${drawnText(key)}` : how][n]; });
  return text === "…";
};
/** Say what is under the pointer in what is drawn: a balance, what it is in an index, or a difference. */
const drawnText = (key) => {
  const { text = "…", held = null } = putAs.get(key) ?? {}, base = bases.get(key);
  return state.as !== "index" || held === null ? text : base === undefined ? unknown : (100 * value(held) / base).toFixed(2);
};
const differenceText = () => {
  const both = state.accounts.map((key) => putAs.get(key) ?? {});
  return both.some(({ text }) => text === "…") ? "…" : written(less(...both.map(({ held }) => held)));
};
const sayMoment = () => {
  if (lines.length) at("moment").textContent = `${when(last)} UTC, in ${unit()}${isDifference() ? `; the difference is ${differenceText()}` : ""}`;
};
const tell = (time) => {
  last = time;
  if (lines.filter((line) => put(line, time)).length && !isFrozen) ask(time);
  sayMoment();
};
const ask = settled(async (time) => {
  const found = await getLines([time, time + 1], "1", "moment").catch(fail);
  if (time === last) for (const line of found ?? []) put(line, time);
  sayMoment();
  mark();
}, 60);

const getLines = async ([from, to], width, as) => {
  const keys = state.accounts, ours = keys.map((key) => ["account", key]), none = { series: [{ times: [], balances: [], rows: 0, missing: true }] };
  const found = isFrozen ? (await Promise.all(ours.map((one) => get("series", [one]).catch(() => none)))).map(({ series: [line] }) => line)
    : keys.length ? (await get("series", [...ours, ["start", String(from)], ["end", String(to)], ["width", width]], as)).series : [];
  return found.map((line, n) => ({ ...line, key: keys[n], ...(isFrozen ? { from: -Infinity, to: Infinity } : { from, to }) }));
};

export const drawLines = () => {
  const [start, end] = span();
  lines = lines.filter(({ key }) => state.accounts.includes(key));
  const ends = lines.map(({ key, balances }) => `${nameOf(key)}: ${[0, -1].map((n) => written(balances.at(n) ?? null)).join(" at first, ")} at last`);
  const own = lines.map((line) => {
    const values = line.balances.map(value), base = baseOf(line, values, start), { key, times, to } = line;
    bases.set(key, base);
    return { to, ink: inkOf(state.accounts.indexOf(key)), name: nameOf(key), tell: () => drawnText(key), times, values: state.as === "index" ? indexed(values, base) : values };
  });
  const pair = () => (({ balances, ...line }) => ({ ...line, ink: inkOf(7), name: "difference", tell: differenceText, values: balances.map(value) }))(differenceOf(...lines));
  const isPair = isDifference() && lines.length === 2;
  at("drawn-as").textContent = drawnAs();
  at("drawn-as").hidden = !drawnAs();
  mark = draw(at("chart"), { start, end, gaps: about.gaps, until: about.end, log: state.log && !isPair, onrange: zoom, onwheel: zoomBy, onpan: panBy, onhover: tell,
    marked: state.when, onall: () => go({ range: "ALL" }), onpick: isFrozen ? undefined : (time) => go({ at: time }), empty: state.chosen && !state.accounts.length ? NONE : "",
    label: `Balances in ${unit()}, ${between([start, end])} UTC. ${drawnAs()} ${ends.join("; ")}`, series: isPair ? [pair()] : own });
  tell(Math.round(Math.min(last || end, end, about.end - 1)));
};

/** Return what a picture of the chart says. */
export const pictured = () => ({ title: at("chart-h").textContent, note: `${between(span())} UTC${state.as === "index" ? "" : `, in ${unit()}`}. ${drawnAs()}`,
  legend: isDifference() ? [[inkOf(7), pairName()]] : lines.map(({ key }) => [inkOf(state.accounts.indexOf(key)), nameOf(key)]) });

/** Choose the largest holders: people, beside whom a treasury would hide all else. */
const chooseFirst = async () => {
  const asset = state.asset.id, keys = (await find("", "first")).map(([key]) => key), people = keys.filter((key) => account(key).party !== "network");
  const given = told().first.filter((key) => account(key).asset === asset).slice(0, MOST), wanted = given.length ? given : [...new Set([...people, ...keys])].slice(0, FIRST);
  if (state.asset.id === asset && !state.chosen) go({ asset, account: wanted, none: wanted.length ? null : "1" }, true, true);
};

export const showChart = async () => {
  const wanted = JSON.stringify([state.accounts, span()]);
  if (!state.chosen) return chooseFirst();
  if (inChart === wanted) return;
  inChart = wanted;
  lines = await getLines(span().map(Math.round), String(Math.min(Math.max(at("chart").clientWidth, 100), 4000))).catch((error) => {
    if (inChart === wanted) inChart = null;
    throw error;
  });
  at("failed").hidden = true;
  drawLines();
};

export const keysOfChart = (event) => {
  const [start, end] = span(), rows = lines.flatMap(({ times }) => times).sort((a, b) => a - b), by = { "+": 0.5, "-": 2 }[event.key], pan = { PageUp: -0.5, PageDown: 0.5 }[event.key];
  if (by) zoomBy(by, last);
  else if (pan) panBy(pan);
  else if (event.key === "Enter" && !isFrozen) go({ at: last });
  else if (event.key === "0") go({ range: "ALL" });
  else if (event.key === "ArrowRight") tell(rows.find((time) => time > last && time < end) ?? last);
  else if (event.key === "ArrowLeft") tell(rows.findLast((time) => time < last && time >= start) ?? last);
  else return;
  event.preventDefault();
  mark(last);
};
