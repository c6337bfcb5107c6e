// What stands above and below the chart: the asset at a glance, and a view for each tab.
import {
  RANGES,
  about,
  add,
  again,
  between,
  bounds,
  choose,
  decimals,
  firstRange,
  gapsIn,
  go,
  inkOf,
  isFrozen,
  justBefore,
  whyUnknown,
  lastOf,
  preset,
  span,
  state,
  unit,
  unitOf,
  value,
  when,
  written,
} from "./address.js";
import { draw } from "./chart.js";
import { get, has } from "./data.js";
import {
  at,
  button,
  copier,
  linked,
  make,
  note,
  refill,
  refusal,
  select,
  unbroken,
} from "./dom.js";
import { column, firstRow, shown, table } from "./table.js";
import {
  account,
  amount,
  called,
  count,
  kindOf,
  many,
  meaning,
  moment,
  printable,
  ratio,
  unknown,
  words,
} from "./text.js";

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
const flowParts = (title, content, [begin, end] = span()) => {
  const [times, ends] = ["start", "end"].map((name) => column(content, name));
  const series = ["inflow", "outflow"].map((name, n) => {
    const sign = n ? -1 : 1;
    const values = column(content, name).map((text) => (text === null ? null : sign * value(text)));
    return { name: words(name), ink: inkOf(n), times, ends, values };
  });
  const first = times.findLast((time, n) => time <= begin && ends[n] > begin); // drawn whole
  const label = `${title}: what came in above, what went out below`;
  const names = series.map(({ name }, n) => make("span", {}, ...legend(name, n)));
  return [
    make("p", { class: "tools note" }, ...names),
    ...plot(series, label, { bars: true, start: first ?? begin, end }),
  ];
};

/** Return totals as lines, each with a button that hides it. */
const totalParts = (content) => {
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
    .map((type, n) => ({ ink: inkOf(n), ...lines.get(type) }))
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
const limitParts = (seen, sheet) => {
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
  const plain = (one) => ({ ...one, name: one.name.replaceAll("_", " ") });
  const every = {
    columns: [...seen.columns.slice(0, 4).map(plain), ...limits.map(([name]) => text(name))],
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

let inHeadline; // what is asked for in it

/** Return a tile: its name, its text, more in small print, and the whole text where that is longer. */
const tile = (name, text, more = [], exact = text, run = undefined) => {
  const small = more.filter(Boolean).join(", ");
  const kind = text === unknown ? "tile lacking" : "tile";
  const value = make("dd", { title: exact === text ? undefined : exact }, linked(text, run));
  if (small) value.append(make("small", {}, ...unbroken(small)));
  return make("div", { class: kind }, make("dt", { title: meaning(name) }, words(name)), value);
};

const held = (name, text, more, run) =>
  tile(name, written(text), more, amount(text, decimals()), run);
const lacking = (number, one, more) => number && `${many(number, one, more)} not known`;

const tiles = ({ level, change }, { sum }) => {
  const [is, moved] = [firstRow(level), firstRow(change)];
  const hit = gapsIn(span(preset()));
  const isSum = moved.change === null && sum.net !== null;
  const firsts = sum.unknown && `without ${many(sum.unknown, "first balance")}`;
  const why = hit ? "rows may be missing" : firsts || "unknown before the range";
  const because = (text, more) => (text === null ? [why] : more);
  const net = isSum ? sum.net : moved.change;
  const sign = (text, isMore) => (isMore ? `+${text}` : text);
  const part = moved.change_percent;
  const percent = part === null ? "" : sign(ratio(part / 100), part > 0);
  const signed = sign(written(net), net !== null && BigInt(net) > 0n);
  const flow = (name) => held(name, sum[name], because(sum[name], [firsts]));
  const then = justBefore(lastOf(span(preset())));
  const show = isFrozen ? undefined : () => go({ tab: "holders", at: null });
  const all = [
    held("total", is.total, [then, lacking(is.unknown_accounts, "account")], show),
    tile("net", signed, because(net, [isSum ? firsts : percent]), amount(net, decimals())),
    flow("inflow"),
    flow("outflow"),
    tile("parties", count(is.parties), [then, lacking(is.unknown_parties, "party", "parties")]),
  ];
  const isLong = all.some((one) => one.querySelector("dd").firstChild.textContent.length > 20);
  return make("dl", { class: isLong ? "tiles long" : "tiles" }, ...all);
};

export const showHeadline = async () => {
  const range = [["asset", state.asset.id], ...bounds()];
  const wanted = JSON.stringify([range, state.digits]);
  if (wanted === inHeadline) return;
  inHeadline = wanted;
  const asked = [get("headline", range), get("flows", range, "headline flows")];
  const answers = await Promise.all(asked).catch((error) => error);
  if (inHeadline !== wanted) return;
  const isFailure = answers instanceof Error;
  if (isFailure) inHeadline = null;
  if (isFailure && answers.name === "AbortError") return;
  const isLater = !about.opened && preset() === firstRange() && preset() !== "ALL";
  const later = isLater
    ? ". The data begin without balances, so the page opens with a later range"
    : "";
  const over = preset() === "ALL" ? "All of the time" : `${between(span(preset()))} UTC`;
  const hit = gapsIn(span(preset()));
  const missing = hit ? ` Rows may be missing: ${hit}.` : "";
  refill(at("headline"), [
    note(`${over}, in ${unit()}${later}.${missing}`),
    isFailure ? refusal(answers, again) : tiles(...answers),
  ]);
};

let draws = [];
let inPanel; // what is asked for in it

const visit = (change) => {
  go({ page: null, ...change });
  at("panel").focus({ preventScroll: true });
  const { top } = at("tabs").getBoundingClientRect();
  if (top < 0 || top > innerHeight * 0.8) at("tabs").scrollIntoView();
};
export const open = (key) => {
  const more = state.accounts.includes(key) ? {} : add(key);
  visit({ tab: "account", focus: key, ...more });
};
const openParty = (party) => visit({ tab: "party", party });
export const explain = (key, time) => visit({ tab: "explain", focus: key, at: time });

/** Return what shows where an amount of an account comes from, at its own moment or `at`; a report has nothing that would. */
const origin = (own, at) => (name, row) => {
  const [start, end] = span();
  const time = {
    balance: row.timestamp ?? at,
    opening: start - 1,
    closing: Math.min(end, about.end) - 1,
    minimum: row.minimum_at,
    maximum: row.maximum_at,
  }[name];
  const key = row.account ?? own;
  const isKnown = !isFrozen && key && (time ?? null) !== null && row[name] !== null;
  return isKnown ? () => explain(key, Math.round(time)) : undefined;
};

const fileNameOf = (caption) => caption.toLowerCase().replaceAll(/\W+/g, "-");

/** Return a table of the panel, by default of amounts of the asset. */
const sheet = (caption, content, { of = state.asset, ...options } = {}) => {
  const isOfAmounts = content.columns.some(({ kind }) => kind === "amount");
  const [own, isExact] = [of.decimals ?? 0, state.digits === "all"];
  return table(isOfAmounts ? `${caption}, in ${unitOf(of)}` : caption, content, {
    decimals: own,
    unit: unitOf(of),
    isExact,
    open,
    openParty: isFrozen ? undefined : openParty,
    name: fileNameOf(caption),
    ...options,
  });
};

const idsOf = (ids) => {
  const line = ([name, text]) => {
    const copy = text.length > 11 ? [copier(name, () => text)] : [];
    return make(
      "div",
      {},
      make("dt", {}, name),
      make("dd", {}, make("span", { title: printable(text) }, printable(text)), ...copy),
    );
  };
  return make("dl", { class: "ids" }, ...Object.entries(ids).map(line));
};

const PARTIAL = ["rows", "changes", "minimum", "maximum", "drawdown", "zero_share"];

/** Return one row as names with values; the moment of a value is in small print. */
const facts = ({ columns, rows: [row = []] }, { own = decimals(), from, isPart } = {}) => {
  const values = Object.fromEntries(columns.map(({ name }, n) => [name, row[n] ?? null]));
  const text = (value, kind) => {
    if (kind === "amount") return written(value, own);
    const whole = shown(value, kind, own);
    return kind === "moment" && !state.digits ? whole.slice(0, 19) : whole;
  };
  const parts = columns
    .filter(({ name }) => !name.endsWith("_at") || !(name.slice(0, -3) in values))
    .filter(({ name, kind }) => text(values[name], kind))
    .map(({ name, kind }) => {
      const [short, whole] = [text(values[name], kind), shown(values[name], kind, own)];
      const time = values[`${name}_at`] ?? null;
      const small = time === null ? [] : [" ", make("small", {}, text(time, "moment"))];
      const data = {
        title: kind === "text" || whole !== short ? whole : undefined,
        class: kind === "amount" && short.length > 24 ? "amount long" : kind,
      };
      const held = kind === "text" ? unbroken(short) : [linked(short, from?.(name, values))];
      const value = make("dd", data, ...held, ...small);
      const part = isPart && PARTIAL.includes(name) ? ", of what is known" : "";
      return make("div", {}, make("dt", { title: meaning(name) }, words(name) + part), value);
    });
  return make("dl", { class: "facts" }, ...parts);
};

const asset = () => ["asset", state.asset.id];
const over = (range = preset()) => {
  const hit = gapsIn(span(range));
  return `${between(span(range))} UTC, in ${unit()}.${hit ? ` Rows may be missing: ${hit}.` : ""}`;
};

/** Return a field for a moment, in UTC; of a report, a choice of those that it has. */
const momentField = () => {
  const choices = Object.keys(RANGES).map((name) => String(span(name)[0]));
  const options = [...new Set(choices)].map((time) => [time, moment(Number(time))]);
  const pick = (time) => go({ at: time });
  const chosen = String(state.when ?? "");
  const type = ({ target: { value } }) => go({ at: value ? Date.parse(`${value}Z`) * 1e3 : null });
  const value = state.when === null ? "" : moment(state.when).slice(0, 19).replace(" ", "T");
  const own = { type: "datetime-local", step: "1", value, onchange: type };
  const field = isFrozen ? select([["", "the end"], ...options], chosen, pick) : make("input", own);
  return make("label", { class: "when" }, "At (UTC) ", field);
};

const accountPanel = async () => {
  const key = state.focus ?? state.accounts[0];
  if (!key) return [note("Add an account above to see its page.")];
  if (isFrozen && !has("account", [["account", key], ...bounds("ALL")])) {
    return [
      note(
        "This report doesn't have the history of that account: write it with a larger number of accounts.",
      ),
    ];
  }
  const range = isFrozen ? "ALL" : state.range;
  const of = [["account", key], ...bounds(range)];
  const page = isFrozen ? pageOf(of) : state.page;
  const asked = [get("account", of), get("rows", [...of, ["page", String(page)]])];
  const [{ summary, periods }, { rows, pages, count: all, page: is }] = await Promise.all(asked);
  const { label, type, party, market, asset: id } = account(key);
  const turn = (by, text) => {
    const disabled = is + by < 0 || is + by >= pages;
    return button(text, () => go({ page: is + by }), { disabled });
  };
  const { opening, closing, average } = firstRow(summary);
  const isBegun = opening === null && closing !== null;
  const absent =
    is === state.page ? "" : `There is no part ${count(state.page + 1)}; this is part ${is + 1}. `;
  const part = pages > 1 ? `; part ${is + 1} of ${pages} of all ${many(all, "row")}` : "";
  const always = isFrozen ? " In a report, this tab is always about all of the time." : "";
  return [
    make("h3", {}, label),
    idsOf({ type, party, market: market || "none", asset: id }),
    note(over(range) + always),
    facts(summary, { from: origin(key), isPart: average === null }),
    ...(isBegun ? [note("What it held at first is neither change nor what came in.")] : []),
    ...flowParts("Flows per period", periods, span(range)),
    sheet("Flows and average per period", periods),
    sheet("Rows", rows, { origin: origin(key), note: `${absent}Newest first${part}.` }),
    ...(pages > 1
      ? [make("div", { class: "tools" }, turn(-1, "Newer rows"), turn(1, "Older rows"))]
      : []),
  ];
};

/** Return the page of rows that a report has in place of one that it doesn't have. */
const pageOf = (of) => (has("rows", [...of, ["page", String(state.page)]]) ? state.page : 0);

const partyParts = (one) => {
  const own = about.assets.find(({ id }) => id === one.id);
  const head = make("h3", {}, unitOf(own));
  if (one.refused)
    return [head, make("p", { class: "note", role: "alert" }, printable(one.refused))];
  const opened = column(one.accounts, "opening");
  const firsts = column(one.accounts, "closing").filter(
    (text, n) => text !== null && opened[n] === null,
  ).length;
  const said = `${many(firsts, "account")} had an unknown balance at the start of this range: what they held at first is neither change nor what came in.`;
  const options = { of: own, openParty: undefined };
  const isOurs = own.id === state.asset.id;
  const title = "Flows with others, and between its own accounts";
  const flows = () => [
    ...flowParts("Flows with others per period", one.flows),
    sheet(title, one.flows, options),
  ];
  const link = () => button(`Show its flows of ${own.label}`, () => choose(own));
  return [
    head,
    facts(one.totals, { own: own.decimals ?? 0 }),
    ...(firsts ? [note(said)] : []),
    sheet("Accounts", one.accounts, { ...options, origin: origin() }),
    ...(isOurs ? flows() : [make("p", { class: "tools" }, link())]),
  ];
};

const partyPanel = async () => {
  const party = state.party ?? account(state.focus ?? state.accounts[0] ?? "|||").party;
  if (!party) return [note("Add an account above to see its party.")];
  const { assets } = await get("party", [["party", party], ...bounds()]);
  const isOurs = ({ id }) => id === state.asset.id;
  const sorted = assets.toSorted((one, two) => isOurs(two) - isOurs(one));
  const none =
    "No account in the data of this range has this party id. The id must be whole here, not short.";
  const parts = sorted.length ? sorted.flatMap(partyParts) : [note(none)];
  return [make("h3", {}, `Party ${called(party)}`), idsOf({ party }), note(over()), ...parts];
};

const PANELS = {
  async holders() {
    const by = state.by ? [["by", state.by]] : [];
    const time = state.when ?? lastOf(span(preset()));
    const at_ = time === about.end - 1 ? [] : [["at", String(time)]];
    const { holders, level, count: all } = await get("holders", [asset(), ...by, ...at_]);
    const moments = state.when ? `at ${moment(state.when)}` : justBefore(time);
    const [listed, what] = [holders.rows.length, state.by ? "parties" : "accounts"];
    const cut = all > listed ? `The largest ${count(listed)} of ${count(all)} ${what}.` : "";
    const why = firstRow(level).unknown_accounts === 0 ? "" : ` ${whyUnknown(time)}`;
    const choices = Object.entries({ "": "account", party: "party" });
    const whose = select(choices, state.by, (name) => go({ by: name }));
    return [
      make(
        "div",
        { class: "tools" },
        momentField(),
        make("label", { class: "when" }, "By ", whose),
      ),
      note(`Held ${moments} UTC, in ${unit()}.${why}`),
      facts(level),
      sheet("Holders", holders, { note: cut, origin: origin(undefined, time) }),
    ];
  },
  async totals() {
    const { totals } = await get("totals", [asset(), ...bounds()]);
    return [...totalParts(totals), sheet("Totals by type", totals, { note: over() })];
  },
  async flows() {
    const { flows, freq } = await get("flows", [asset(), ...bounds()]);
    const caption = `Flows per ${freq}`;
    return [...flowParts(caption, flows), sheet(caption, flows, { note: over() })];
  },
  async movers() {
    const { movers, count: all, unknown } = await get("movers", [asset(), ...bounds()]);
    const listed = movers.rows.length;
    const none =
      "No account is known to hold more or less at the end of this range than at its start.";
    const cut =
      all > listed ? ` The largest ${count(listed)} of ${many(all, "account")} that moved.` : "";
    const absent = unknown ? ` Without ${many(unknown, "account")} whose change is not known.` : "";
    return [sheet("Movers", movers, { note: over() + cut + absent, origin: origin(), none })];
  },
  account: accountPanel,
  party: partyPanel,
  async explain() {
    const key = state.focus ?? state.accounts[0];
    if (!key)
      return [note("Add an account above, or click an amount of one, to see where it comes from.")];
    const at_ = [["at", String(state.when ?? lastOf(span()))]];
    const { explanation, cited } = await get("explain", [["account", key], ...at_]);
    const { label, type, party, market } = account(key);
    return [
      make("h3", {}, `Where a balance comes from: ${label}`),
      idsOf({ type, party, market: market || "none" }),
      momentField(),
      note(`Amounts are in ${unit()}.`),
      facts(explanation),
      sheet("The row that it rests on, and those beside it", cited),
    ];
  },
  async notes() {
    const { coverage, limits } = await get("notes");
    if (!coverage) return [note("Only an archive has coverage and network limits.")];
    return [sheet("Coverage", coverage), ...limitParts(limits, sheet)];
  },
};

export const drawPanel = () => {
  for (const run of draws) run();
};

/** Show the view of the tab, unless it is there already. */
export const showPanel = async () => {
  const { asset: one, tab, when, focus, page, hidden, range, accounts, digits, party, by } = state;
  const own = ["account", "party", "explain"].includes(tab) && !focus ? accounts : 0;
  const chosen = [one.id, tab, when, focus, page, digits, party, by, hidden];
  const wanted = JSON.stringify([...chosen, preset(range), own]);
  if (wanted === inPanel) return;
  inPanel = wanted;
  for (const each of at("tabs").children) {
    each.setAttribute("aria-selected", String(each.dataset.tab === tab));
    each.tabIndex = each.dataset.tab === tab ? 0 : -1;
  }
  at("panel").setAttribute("aria-labelledby", `tab-${tab}`);
  const parts = await PANELS[tab]().catch((error) => error);
  if (inPanel !== wanted) return;
  if (parts instanceof Error) {
    inPanel = null;
    if (parts.name !== "AbortError") refill(at("panel"), [refusal(parts, again)]);
    return;
  }
  draws = parts.filter((part) => typeof part === "function");
  refill(
    at("panel"),
    parts.filter((part) => typeof part !== "function"),
  );
  drawPanel();
};
