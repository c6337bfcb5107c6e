// The charts of panels: totals by type, flows and limits.
import { about, go, inkOf, span, state, value } from "./address.js";
import { draw } from "./chart.js";
import { make, note } from "./dom.js";
import { column, shown } from "./table.js";
import { kindOf, moment, words } from "./text.js";

/** Return a box for a chart, and what draws it. */
const plot = (series, label, options = {}) => {
  const box = make("div", { class: "chart" });
  const run = () => {
    const [start, end] = span();
    draw(box, { series, start, end, gaps: about.gaps, until: about.end, label, ...options });
  };
  return [box, run];
};

const legend = (label, n) => [
  make("span", { class: `swatch ${inkOf(n)}`, "aria-hidden": "true" }),
  label,
];

/** Return flows as bars: what came in above, what went out below. */
export const flowParts = (title, content) => {
  const [times, ends] = ["start", "end"].map((name) => column(content, name));
  const series = ["inflow", "outflow"].map((name, n) => {
    const sign = n ? -1 : 1;
    const values = column(content, name).map((text) => (text === null ? null : sign * value(text)));
    return { name: words(name), ink: inkOf(n), times, ends, values };
  });
  const first = times.findLast((time, n) => time <= span()[0] && ends[n] > span()[0]); // drawn whole
  const label = `${title}: what came in above, what went out below`;
  const names = series.map(({ name }, n) => make("span", {}, ...legend(name, n)));
  const start = first ?? span()[0];
  return [
    make("p", { class: "tools note" }, ...names),
    ...plot(series, label, { bars: true, start }),
  ];
};

/** Return totals as lines, each with a button that hides it. */
export const totalParts = (content) => {
  const [types, times, totals] = ["account_type", "timestamp", "total"].map((name) =>
    column(content, name),
  );
  const lines = new Map();
  types.forEach((type, n) => {
    if (!lines.has(type)) lines.set(type, { times: [], values: [] });
    lines.get(type).times.push(times[n]);
    lines.get(type).values.push(value(totals[n]));
  });
  const peak = (type) => Math.max(...lines.get(type).values);
  const ranked = [...lines.keys()].sort((one, two) => peak(two) - peak(one));
  const isHidden = (type) => state.hidden.includes(type);
  const toggles = ranked.map((type, n) => {
    const others = state.hidden.filter((one) => one !== type);
    const hide = () => go({ hide: isHidden(type) ? others : [...others, type] }, true);
    const pressed = { "aria-pressed": String(!isHidden(type)) };
    return make(
      "button",
      { type: "button", onclick: hide, ...pressed },
      ...legend(kindOf(type), n),
    );
  });
  const series = ranked
    .map((type, n) => ({ name: kindOf(type), ink: inkOf(n), ...lines.get(type) }))
    .filter((_, n) => !isHidden(ranked[n]));
  const group = {
    class: "tools",
    role: "group",
    "aria-label": "Account types; press one to hide it",
  };
  return [make("div", group, ...toggles), ...plot(series, "Totals by account type")];
};

const limitText = (value) => {
  if (typeof value === "boolean") return shown(value, "flag");
  return typeof value === "string" ? value : JSON.stringify(value);
};
const spaced = (name) => name.replaceAll(/(?<=[a-z\d])(?=[A-Z])/g, " ").toLowerCase();

/** Return network limits, each with its name and its texts over time. */
const limitsOf = (seen) => {
  const own = seen.columns.slice(4, -1).map(({ name, kind }) => {
    const text = (held) => (held === null ? "not set" : shown(held, kind));
    return [words(name), column(seen, name).map(text)];
  });
  const more = column(seen, "extra").map((text) => JSON.parse(text ?? "{}"));
  const extra = [...new Set(more.flatMap(Object.keys))].map((name) => {
    const text = (each) => (Object.hasOwn(each, name) ? limitText(each[name]) : "not sent");
    return [spaced(name), more.map(text)];
  });
  return [...own, ...extra];
};

const limitPlot = ([label, texts], froms, tos) => {
  const levels = [...new Set(texts)].sort();
  const places = texts.map((text) => levels.indexOf(text));
  const times = froms.flatMap((from, n) => [from, tos[n] + 1]).slice(0, -1);
  // Where two states differ, nothing says when the change came.
  const values = places.flatMap((at, n) => [at, at === places[n + 1] ? at : null]).slice(0, -1);
  const parts = texts.map((text, n) => `${text} from ${moment(froms[n])} to ${moment(tos[n])}`);
  const options = { levels, start: froms[0], end: tos.at(-1), until: undefined, gaps: [] };
  const [box, run] = plot(
    [{ ink: inkOf(0), times, values }],
    `${label}: ${parts.join("; ")}`,
    options,
  );
  return [make("div", {}, make("h4", {}, label), box), run];
};

/** Return network limits: charts of those that changed, and tables, which `sheet` makes. */
export const limitParts = (seen, sheet) => {
  const [froms, tos] = ["first_seen", "last_seen"].map((name) => column(seen, name));
  const limits = limitsOf(seen);
  const isKept = ([, texts]) => new Set(texts).size === 1;
  const charts = limits
    .filter((one) => one[1].length && !isKept(one))
    .map((one) => limitPlot(one, froms, tos));
  const text = (name) => ({ name, kind: "text" });
  const kept = {
    columns: ["limit", "value"].map(text),
    rows: limits.filter(isKept).map(([name, [first]]) => [name, first]),
  };
  const every = {
    columns: [...seen.columns.slice(0, 4), ...limits.map(([name]) => text(name))],
    rows: seen.rows.map((row, n) => [...row.slice(0, 4), ...limits.map(([, texts]) => texts[n])]),
  };
  const why = "Where a line breaks, the change came between two looks at the network.";
  return [
    ...(charts.length ? [make("h3", {}, "Limits that changed"), note(why)] : []),
    make("div", { class: "many" }, ...charts.map(([part]) => part)),
    ...charts.map(([, run]) => run),
    sheet(charts.length ? "Limits that did not change" : "Network limits", kept),
    sheet("Every state of the limits", every),
  ];
};
