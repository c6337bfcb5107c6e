// Charts of what panels list: totals by type, and flows. They have scales of their own.
import { STACKS, about, between, go, inkOf, span, state, unit, value, written } from "./address.js";
import { draw } from "./chart.js";
import { make } from "./dom.js";
import { pictures } from "./picture.js";
import { kindOf, moment, words } from "./text.js";

const STACKED = { "": "lines", stacked: "stacked", shares: "shares", log: "lines, log scale" };

export const column = (content, name) => content.rows.map((row) => row[content.columns.findIndex((one) => one.name === name)]);

/** Return a box for a chart, what saves it, and what draws it. */
const plot = (series, { title, ...options }) => {
  const box = make("div", { class: "chart" }), [{ times, ends } = { times: [] }] = series, placeOf = (time) => times.findLastIndex((one) => one <= time);
  const begin = () => (options.bars && !options.stacked ? times.findLast((time, n) => time <= span()[0] && ends?.[n] > span()[0]) : null) ?? span()[0]; // a bar is drawn whole
  const headed = (time) => (!times[placeOf(time)] ? moment(time) : options.bars && !options.stacked ? between([times, ends].map((all) => all[placeOf(time)])) : moment(times[placeOf(time)]));
  const told = series.map((one) => ({ ...one, tell: (time) => written(one.texts[placeOf(time)] ?? null) }));
  const tell = () => ({ title: `${state.asset.label}: ${title}`, note: `${between(span())} UTC, ${options.style ?? `in ${unit()}`}`, legend: series.map(({ ink, name }) => [ink, name]) });
  const run = () => draw(box, { series: told, start: begin(), end: span()[1], gaps: about.gaps, until: about.end, label: title, headed, ...options });
  return [box, run, make("div", { class: "joined saved", role: "group", "aria-label": "Save the chart" }, ...pictures(box, tell))];
};
const legend = (label, n) => [make("span", { class: `swatch ${inkOf(n)}`, "aria-hidden": "true" }), label];

/** Return flows as bars: what came in above, what went out below. */
export const flowParts = (title, content) => {
  const series = ["inflow", "outflow"].map((name, n) => ({ name: words(name), ink: inkOf(n), times: column(content, "start"), ends: column(content, "end"), texts: column(content, name),
    values: column(content, name).map((text) => (text === null ? null : (n ? -1 : 1) * value(text))) }));
  return [make("p", { class: "tools note" }, ...series.map(({ name }, n) => make("span", {}, ...legend(name, n)))),
    ...plot(series, { title, label: `${title}: what came in above, what went out below`, bars: true })];
};

/** Return totals as lines, or one on the other: where one of them isn't known, neither is what they make up. */
export const totalParts = ({ rows }) => {
  const times = [...new Set(rows.map((row) => row[1]))], held = new Map(), peaks = new Map();
  for (const [type, time, total] of rows) {
    held.set(`${type} ${time}`, total);
    peaks.set(type, Math.max(peaks.get(type) ?? 0, value(total) ?? 0));
  }
  const types = [...peaks.keys()].sort((one, two) => peaks.get(two) - peaks.get(one)); // the largest first: those that show have a colour of their own
  const toggles = types.map((type, n) => make("button", { type: "button", "aria-pressed": String(!state.hidden.includes(type)),
    onclick: () => go({ hide: state.hidden.includes(type) ? state.hidden.filter((one) => one !== type) : [...state.hidden, type] }, true) }, ...legend(kindOf(type), n)));
  const choice = make("select", { "aria-label": "Show as", onchange: ({ target }) => go({ totals: target.value }, true) },
    ...["", ...STACKS].map((name) => make("option", { value: name, selected: name === state.stack }, STACKED[name])));
  const sums = (of) => times.map((time) => of.reduce((sum, type) => {
    const total = held.get(`${type} ${time}`) ?? null;
    return sum === null || total === null ? null : sum + value(total);
  }, 0));
  const all = sums(types), shown = types.filter((type) => !state.hidden.includes(type)), stacked = ["stacked", "shares"].includes(state.stack), known = sums(shown);
  const ends = times.map((_, n) => times[n + 1] ?? Math.min(span()[1], about.end));
  const part = (sum, n) => (state.stack !== "shares" ? sum : sum === null || all[n] === null ? null : sum / (all[n] || 1));
  const series = shown.map((type, n) => {
    const texts = times.map((time) => held.get(`${type} ${time}`) ?? null), [floors, tops] = [n, n + 1].map((to) => sums(shown.slice(0, to)).map((sum, at) => part(known[at] === null ? null : sum, at)));
    return { name: kindOf(type), ink: inkOf(types.indexOf(type)), times, ends, texts, ...(stacked ? { floors, values: tops } : { values: texts.map(value) }) };
  });
  const title = state.stack === "shares" ? "shares by account type" : "totals by account type";
  return [make("div", { class: "tools", role: "group", "aria-label": "Account types; press one to hide it" }, ...toggles, make("label", {}, "Show as ", choice),
    make("span", { class: "note" }, `Click a type to hide it.${stacked ? " Where one of those shown isn't known, the stack is left out." : ""}`)),
  ...plot(series, { title, bars: stacked, stacked, log: state.stack === "log", style: state.stack === "shares" ? "percent" : undefined })];
};
