// The parts above and below the chart: the asset at a glance, and a view per tab.
import { RANGES, about, choose, explain, go, isFrozen, span, state } from "./address.js";
import { draw } from "./chart.js";
import { get, has } from "./data.js";
import { at, button, make, newest, refill, select } from "./dom.js";
import { account, called, kindOf, meaning, words } from "./names.js";
import { copier, inkOf, linked, note, refusal, swatch, tools, unbroken } from "./parts.js";
import { bounds, intro, justBefore, lastOf, missingIn, over, preset, whyUnknown } from "./range.js";
import { column, firstRow, table } from "./table.js";
import { amount, count, many, moment, printable, ratio, shown, unknown } from "./text.js";
import { decimals, unit, unitOf, value, written } from "./unit.js";

/** Return a box for a chart, which is drawn on each "draw" event. */
const plot = (series, label, options = {}) => {
  const ondraw = ({ target }) => {
    const [start, end] = span();
    draw(target, { series, start, end, gaps: about.gaps, until: about.end, label, ...options });
  };
  return make("div", { class: "chart", ondraw });
};

const asset = () => ["asset", state.asset.id];

/** Return flows as bars: inflow above, outflow below. */
const flowParts = (title, content, [begin, end] = span()) => {
  const [times, ends] = ["start", "end"].map((name) => column(content, name));
  const series = ["inflow", "outflow"].map((name, n) => {
    const sign = n ? -1 : 1;
    const values = column(content, name).map((text) => (text === null ? null : sign * value(text)));
    return { name: words(name), ink: inkOf(n), times, ends, values };
  });
  const first = times.findLast((time, n) => time <= begin && ends[n] > begin); // drawn whole
  const label = `${title}: inflow above, outflow below`;
  const names = series.map(({ name }, n) => make("span", {}, swatch(n), name));
  return [
    make("p", { class: "tools note" }, ...names),
    plot(series, label, { bars: true, start: first ?? begin, end }),
  ];
};

/** Return totals as lines, each with a button to hide it. */
const totalParts = (content) => {
  const [times, totals] = ["timestamp", "total"].map((name) => column(content, name));
  const types = column(content, "account_type");
  const places = [...Map.groupBy(types.keys(), (n) => types[n])];
  const lines = places.map(([type, own]) => ({
    type,
    times: own.map((n) => times[n]),
    values: own.map((n) => value(totals[n])),
  }));
  const ranked = lines.sort((one, two) => Math.max(...two.values) - Math.max(...one.values));
  const isHidden = (type) => state.hidden.includes(type);
  const toggles = ranked.map(({ type }, n) => {
    const others = state.hidden.filter((one) => one !== type);
    const hide = () => go({ hide: isHidden(type) ? others : [...others, type] }, true);
    const pressed = { "aria-pressed": String(!isHidden(type)) };
    return button([swatch(n), kindOf(type)], hide, pressed);
  });
  const inked = ranked.map((one, n) => ({ ...one, ink: inkOf(n) }));
  const series = inked.filter(({ type }) => !isHidden(type));
  const group = tools(...toggles);
  group.role = "group";
  group.ariaLabel = "Account types; press one to hide it";
  return [group, plot(series, "Totals by account type")];
};

const limitText = (value) => {
  if (typeof value === "boolean") return shown(value, "flag");
  return typeof value === "string" ? value : JSON.stringify(value);
};
const spaced = (name) => name.replaceAll(/(?<=[a-z\d])(?=[A-Z])/g, " ").toLowerCase();

/** Return network limits: each one's name and its texts over time. */
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
  // If two states differ, the time of the change is unknown.
  const values = places.flatMap((at, n) => [at, at === places[n + 1] ? at : null]).slice(0, -1);
  const parts = texts.map((text, n) => `${text} from ${moment(froms[n])} to ${moment(tos[n])}`);
  const said = `${label}: ${parts.join("; ")}`;
  const options = { levels, start: froms[0], end: tos.at(-1), until: undefined, gaps: [] };
  const chart = plot([{ ink: inkOf(0), times, values }], said, options);
  return make("div", {}, make("h4", {}, label), chart);
};

/** Return network limits: charts of those that changed, and tables. */
const limitParts = (seen) => {
  const [froms, tos] = ["first_seen", "last_seen"].map((name) => column(seen, name));
  const limits = limitsOf(seen);
  const isKept = ([, texts]) => new Set(texts).size === 1;
  const changed = froms.length ? limits.filter((one) => !isKept(one)) : [];
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
  const why = "Where a line breaks, the limit changed between two snapshots.";
  return [
    ...(changed.length ? [make("h3", {}, "Limits that changed"), note(why)] : []),
    make("div", { class: "many" }, ...changed.map((one) => limitPlot(one, froms, tos))),
    table(changed.length ? "Limits that did not change" : "Network limits", kept),
    table("Every state of the limits", every),
  ];
};

/** Return a name and its content; `own` are the pair's attributes, `data` those of the content. */
const pair = (name, content, { data = {}, more = "", ...own } = {}) => {
  const term = make("dt", { title: meaning(name) }, words(name) + more);
  return make("div", own, term, make("dd", data, ...content));
};

/** Return a tile: a name, a text, more in small print; a longer exact text shows on hover. */
const tile = (name, text, more = [], exact = text, run = undefined) => {
  const small = more.filter(Boolean).join(", ");
  const content = [linked(text, run), small && make("small", {}, ...unbroken(small))];
  const data = { title: exact === text ? undefined : exact };
  return pair(name, content, { class: text === unknown ? "tile lacking" : "tile", data });
};

const held = (name, text, more, run) =>
  tile(name, written(text), more, amount(text, decimals()), run);
const lacking = (number, ...words) => number && many(number, ...words);

const PARTIES = ["unknown party", "unknown parties"];

const tiles = ({ level, change }, { sum }) => {
  const [is, moved] = [firstRow(level), firstRow(change)];
  const isSum = moved.change === null && sum.net !== null;
  const firsts = sum.unknown && `without ${many(sum.unknown, "first row")}`;
  const why = missingIn() ? "rows may be missing" : firsts || "unknown before the range";
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
    held("total", is.total, [then, lacking(is.unknown_accounts, "unknown account")], show),
    tile("net", signed, because(net, [isSum ? firsts : percent]), amount(net, decimals())),
    flow("inflow"),
    flow("outflow"),
    tile("parties", count(is.parties), [then, lacking(is.unknown_parties, ...PARTIES)]),
  ];
  const isLong = all.some((one) => one.querySelector("dd").firstChild.textContent.length > 20);
  return make("dl", { class: isLong ? "tiles long" : "tiles" }, ...all);
};

const fillHeadline = newest((answers) => {
  refill(at("headline"), [
    note(intro()),
    answers instanceof Error ? refusal(answers) : tiles(...answers),
  ]);
});

export const showHeadline = () => {
  const range = [asset(), ...bounds()];
  const ask = () => Promise.all([get("headline", range), get("flows", range, "headline flows")]);
  return fillHeadline([range, state.digits], ask);
};

/** Return a function that explains an account's amount, at the amount's moment or `at`; in a report, it returns nothing. */
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

const idsOf = (ids) => {
  const line = ([name, text]) => {
    const copy = text.length > 11 && copier(name, () => text);
    return pair(name, [make("span", { title: printable(text) }, printable(text)), copy]);
  };
  return make("dl", { class: "ids" }, ...Object.entries(ids).map(line));
};

const PARTIAL = ["rows", "changes", "minimum", "maximum", "drawdown", "zero_share"];

/** Return one row as names with values; a value's moment is in small print. */
const facts = (sheet, { own = decimals(), from, isPart } = {}) => {
  const values = firstRow(sheet);
  const text = (value, kind) => {
    if (kind === "amount") return written(value, own);
    const whole = shown(value, kind, own);
    return kind === "moment" && !state.digits ? whole.slice(0, 19) : whole;
  };
  const parts = sheet.columns
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
      const more = isPart && PARTIAL.includes(name) ? ", known part only" : "";
      return pair(name, [...held, ...small], { data, more });
    });
  return make("dl", { class: "facts" }, ...parts);
};

/** Return a field for a moment in UTC; in a report, a choice of the moments that it has. */
const momentField = () => {
  const pick = (time) => go({ at: time });
  const type = ({ target: { value } }) => pick(value ? Date.parse(`${value}Z`) * 1e3 : null);
  const value = state.when === null ? "" : moment(state.when).slice(0, 19).replace(" ", "T");
  const own = { type: "datetime-local", step: "1", value, onchange: type };
  const starts = [...new Set(Object.keys(RANGES).map((name) => span(name)[0]))];
  const options = [["", "the end"], ...starts.map((time) => [time, moment(time)])];
  const chosen = starts.includes(state.when) ? state.when : "";
  const field = isFrozen ? select(options, chosen, pick) : make("input", own);
  return make("label", { class: "when" }, "At (UTC) ", field);
};

const NO_HISTORY =
  "This report doesn't have this account's history: write it again with a larger --largest.";

const accountPanel = async () => {
  const key = state.focus ?? state.accounts[0];
  if (!key) return [note("Add an account above to see its page.")];
  const range = isFrozen ? "ALL" : state.range;
  const of = [["account", key], ...bounds(range)];
  if (!has("account", of)) return [note(NO_HISTORY)];
  const page = has("rows", [...of, ["page", state.page]]) ? state.page : 0;
  const asked = [get("account", of), get("rows", [...of, ["page", page]])];
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
  const part = pages > 1 ? `; part ${is + 1} of ${pages}, ${many(all, "row")} in all` : "";
  const always = isFrozen ? " In a report, this tab always covers all time." : "";
  return [
    make("h3", {}, ...unbroken(label)),
    idsOf({ type, party, market: market || "none", asset: id }),
    note(over(range) + always),
    facts(summary, { from: origin(key), isPart: average === null }),
    isBegun && note("Its first balance counts as neither change nor inflow."),
    ...flowParts("Flows per period", periods, span(range)),
    table("Flows and average per period", periods),
    table("Rows", rows, { origin: origin(key), note: `${absent}Newest first${part}.` }),
    pages > 1 && tools(turn(-1, "Newer rows"), turn(1, "Older rows")),
  ];
};

const partyParts = (one) => {
  const own = about.assets.find(({ id }) => id === one.id);
  const head = make("h3", {}, unitOf(own));
  if (one.refused) return [head, refusal({ message: printable(one.refused), isFinal: true })];
  const [opened, closed] = ["opening", "closing"].map((name) => column(one.accounts, name));
  const firsts = opened.filter((text, n) => text === null && closed[n] !== null).length;
  const said = `${many(firsts, "account")} had an unknown balance at the start of this range: first balances count as neither change nor inflow.`;
  const flows = () => [
    ...flowParts("Flows with others per period", one.flows),
    table("Flows with others, and between its own accounts", one.flows),
  ];
  const lead = () => tools(button(`Show its flows of ${own.label}`, () => choose(own)));
  return [
    head,
    facts(one.totals, { own: own.decimals ?? 0 }),
    firsts > 0 && note(said),
    table("Accounts", one.accounts, { of: own, origin: origin() }),
    ...(own.id === state.asset.id ? flows() : [lead()]),
  ];
};

const partyPanel = async () => {
  const party = state.party ?? account(state.focus ?? state.accounts[0] ?? "|||").party;
  if (!party) return [note("Add an account above to see its party.")];
  const { assets } = await get("party", [["party", party], ...bounds()]);
  const isOurs = ({ id }) => id === state.asset.id;
  const sorted = assets.toSorted((one, two) => isOurs(two) - isOurs(one));
  const none = "No account in this range has this party id. Give the whole id, not its short form.";
  const parts = sorted.length ? sorted.flatMap(partyParts) : [note(none)];
  return [make("h3", {}, `Party ${called(party)}`), idsOf({ party }), note(over()), ...parts];
};

const PANELS = {
  async holders() {
    const by = state.by ? [["by", state.by]] : [];
    const last = about.end - 1;
    const of = (time) => [asset(), ...by, ...(time === last ? [] : [["at", time]])];
    const wanted = state.when ?? lastOf(span(preset()));
    const isThere = has("holders", of(wanted));
    const time = isThere ? wanted : last;
    const { holders, level, count: all } = await get("holders", of(time));
    const absent = isThere ? "" : `This report has no holders at ${moment(wanted)}. `;
    const then = state.when && isThere ? `at ${moment(time)}` : justBefore(time);
    const [listed, what] = [holders.rows.length, state.by ? "parties" : "accounts"];
    const cut = all > listed ? `The largest ${count(listed)} of ${count(all)} ${what}.` : "";
    const why = firstRow(level).unknown_accounts === 0 ? "" : ` ${whyUnknown(time)}`;
    const choices = Object.entries({ "": "account", party: "party" });
    const whose = select(choices, state.by, (name) => go({ by: name }));
    return [
      tools(momentField(), make("label", { class: "when" }, "By ", whose)),
      note(`${absent}Held ${then} UTC, in ${unit()}.${why}`),
      facts(level),
      table("Holders", holders, { note: cut, origin: origin(undefined, time) }),
    ];
  },
  async totals() {
    const { totals } = await get("totals", [asset(), ...bounds()]);
    return [...totalParts(totals), table("Totals by type", totals, { note: over() })];
  },
  async flows() {
    const { flows, freq } = await get("flows", [asset(), ...bounds()]);
    const caption = `Flows per ${freq}`;
    return [...flowParts(caption, flows), table(caption, flows, { note: over() })];
  },
  async movers() {
    const { movers, count: all, unknown } = await get("movers", [asset(), ...bounds()]);
    const listed = movers.rows.length;
    const none =
      "No account is known to hold more or less at the end of this range than at its start.";
    const cut =
      all > listed ? ` The largest ${count(listed)} of ${many(all, "account")} that moved.` : "";
    const absent = unknown ? ` Left out: ${many(unknown, "account")} with an unknown change.` : "";
    return [table("Movers", movers, { note: over() + cut + absent, origin: origin(), none })];
  },
  account: accountPanel,
  party: partyPanel,
  async explain() {
    const key = state.focus ?? state.accounts[0];
    if (!key)
      return [note("Add an account above, or click an amount, to see where it comes from.")];
    const at_ = [["at", state.when ?? lastOf(span())]];
    const { explanation, cited } = await get("explain", [["account", key], ...at_]);
    const { label, type, party, market } = account(key);
    return [
      make("h3", {}, ...unbroken(`Where a balance comes from: ${label}`)),
      idsOf({ type, party, market: market || "none" }),
      momentField(),
      note(`Amounts are in ${unit()}.`),
      facts(explanation),
      table("The row of the balance, and those beside it", cited),
    ];
  },
  async notes() {
    const { coverage, limits } = await get("notes");
    if (!coverage) return [note("Only an archive has coverage and network limits.")];
    return [table("Coverage", coverage), ...limitParts(limits)];
  },
};

export const drawPanel = () => {
  for (const box of at("panel").querySelectorAll(".chart, .wide"))
    box.dispatchEvent(new Event("draw"));
};

const fillPanel = newest((answer) => {
  refill(at("panel"), answer instanceof Error ? [refusal(answer)] : answer);
  drawPanel();
});

/** Show the tab's view, unless it is shown already. */
export const showPanel = () => {
  const { asset: one, tab, when, focus, page, hidden, range, accounts, digits, party, by } = state;
  for (const each of at("tabs").children) {
    each.setAttribute("aria-selected", String(each.dataset.tab === tab));
    each.tabIndex = each.dataset.tab === tab ? 0 : -1;
  }
  at("panel").setAttribute("aria-labelledby", `tab-${tab}`);
  const own = ["account", "party", "explain"].includes(tab) && !focus ? accounts : 0;
  const chosen = [one.id, tab, when, focus, page, digits, party, by, hidden];
  return fillPanel([...chosen, preset(range), own], PANELS[tab]);
};
