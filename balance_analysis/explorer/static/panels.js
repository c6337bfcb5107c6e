// The panel below the chart, with a view for each tab.
import {
  RANGES,
  about,
  add,
  again,
  between,
  bounds,
  choose,
  decimals,
  gapsIn,
  go,
  isFrozen,
  preset,
  span,
  state,
  unit,
  unitOf,
  when,
  written,
} from "./address.js";
import { addressOf, get, has } from "./data.js";
import { at, button, copier, linked, make, note, refill, refusal, select } from "./dom.js";
import { flowParts, limitParts, totalParts } from "./plots.js";
import { column, firstRow, shown, table } from "./table.js";
import { account, called, count, many, meaning, moment, printable, words } from "./text.js";

let draws = [];
let asked = []; // views of the panel
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
    return make("div", {}, make("dt", {}, name), make("dd", {}, printable(text), " ", ...copy));
  };
  return make("dl", { class: "ids" }, ...Object.entries(ids).map(line));
};

/** Return one row as names with values; the moment of a value is in small print. */
const facts = ({ columns, rows: [row = []] }, { own = decimals(), from } = {}) => {
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
        title: whole === short ? undefined : whole,
        class: kind === "amount" && short.length > 24 ? "amount long" : kind,
      };
      const value = make("dd", data, linked(short, from?.(name, values)), ...small);
      return make("div", {}, make("dt", { title: meaning(name) }, words(name)), value);
    });
  return make("dl", { class: "facts" }, ...parts);
};

/** Return a view for the panel, which then says where its data is. */
const look = (view, parameters = []) => {
  asked.push([view, parameters]);
  return get(view, parameters);
};
const dataParts = () => {
  if (isFrozen || !asked.length) return [];
  const link = ([view, parameters]) =>
    make("a", { href: addressOf(view, parameters), target: "_blank" }, `${view} JSON`);
  const links = asked.flatMap((one, n) => [n ? ", " : "", link(one)]);
  return [make("p", { class: "note data" }, "Data: ", ...links)];
};

const asset = () => ["asset", state.asset.id];
const over = (range = preset()) => {
  const hit = gapsIn(span(range));
  return `${between(span(range))} UTC.${hit ? ` Rows may be missing: ${hit}.` : ""}`;
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
  const asked = [look("account", of), look("rows", [...of, ["page", String(page)]])];
  const [found, { rows, pages, count: all, page: is }] = await Promise.all(asked);
  const { label, type, party, market, asset: id } = account(key);
  const turn = (by, text) => {
    const disabled = is + by < 0 || is + by >= pages;
    return button(text, () => go({ page: is + by }), { disabled });
  };
  const { opening, closing } = firstRow(found.summary);
  const isBegun = opening === null && closing !== null;
  const absent =
    is === state.page ? "" : `There is no part ${count(state.page + 1)}; this is part ${is + 1}. `;
  const part = pages > 1 ? `; part ${is + 1} of ${pages} of all ${many(all, "row")}` : "";
  const always = isFrozen ? " In a report, this tab is always about all of the time." : "";
  return [
    make("h3", {}, label),
    idsOf({ type, party, market: market || "none", asset: id }),
    note(over(range) + always),
    facts(found.summary, { from: origin(key) }),
    ...(isBegun ? [note("What it held at first is neither change nor what came in.")] : []),
    ...flowParts("Flows per period", found.periods),
    sheet("Flows and average per period", found.periods),
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
  return [
    head,
    facts(one.totals, { own: own.decimals ?? 0 }),
    ...(firsts ? [note(said)] : []),
    sheet("Accounts", one.accounts, { ...options, origin: origin() }),
    ...(isOurs
      ? [...flowParts("Flows with others per period", one.flows), sheet(title, one.flows, options)]
      : []),
    ...(isOurs
      ? []
      : [
          make(
            "p",
            { class: "tools" },
            button(`Show its flows of ${own.label}`, () => choose(own)),
          ),
        ]),
  ];
};

const partyPanel = async () => {
  const party = state.party ?? account(state.focus ?? state.accounts[0] ?? "|||").party;
  if (!party) return [note("Add an account above to see its party.")];
  const { assets } = await look("party", [["party", party], ...bounds()]);
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
    const when_ = state.when ? [["at", String(state.when)]] : [];
    const found = await look("holders", [asset(), ...by, ...when_]);
    const { holders, level, count: all } = found;
    const moments = state.when ? `at ${moment(state.when)}` : `just before ${when(about.end)}`;
    const [listed, what] = [holders.rows.length, state.by ? "parties" : "accounts"];
    const cut = all > listed ? ` The largest ${count(listed)} of ${count(all)} ${what}.` : "";
    const time = state.when ?? about.end - 1;
    const gap = gapsIn([time, time + 1]);
    const missing = gap ? ` Rows may be missing: ${gap}. What may have changed is unknown.` : "";
    const names = { unknown: "unknown_accounts", holders: state.by ? "parties" : "holders" };
    const isShown = (name, n) => (name === "unknown_holders" ? state.by : level.rows[0]?.[n] !== 0);
    const kept = [...level.columns.keys()].filter((n) => isShown(level.columns[n].name, n));
    const only = (all) => kept.map((n) => all[n]);
    const named = only(level.columns).map((one) => ({ ...one, name: names[one.name] ?? one.name }));
    const choices = Object.entries({ "": "account", party: "party" });
    const whose = select(choices, state.by, (name) => go({ by: name }));
    return [
      make(
        "div",
        { class: "tools" },
        momentField(),
        make("label", { class: "when" }, "By ", whose),
      ),
      facts({ columns: named, rows: level.rows.map(only) }),
      sheet("Holders", holders, {
        note: `Held ${moments} UTC.${cut}${missing}`,
        origin: origin(undefined, time),
      }),
    ];
  },
  async totals() {
    const { totals } = await look("totals", [asset(), ...bounds()]);
    return [...totalParts(totals), sheet("Totals by type", totals, { note: over() })];
  },
  async flows() {
    const { flows, freq } = await look("flows", [asset(), ...bounds()]);
    const caption = `Flows per ${freq}`;
    return [...flowParts(caption, flows), sheet(caption, flows, { note: over() })];
  },
  async movers() {
    const { movers, count: all, unknown } = await look("movers", [asset(), ...bounds()]);
    const listed = movers.rows.length;
    const cut =
      all > listed ? ` The largest ${count(listed)} of ${many(all, "account")} that moved.` : "";
    const lacking = unknown
      ? ` Without ${many(unknown, "account")} whose change is not known.`
      : "";
    return [sheet("Movers", movers, { note: over() + cut + lacking, origin: origin() })];
  },
  account: accountPanel,
  party: partyPanel,
  async explain() {
    const key = state.focus ?? state.accounts[0];
    if (!key)
      return [note("Add an account above, or click an amount of one, to see where it comes from.")];
    const at_ = state.when ? [["at", String(state.when)]] : [];
    const { explanation, cited } = await look("explain", [["account", key], ...at_]);
    const { label, type, party, market } = account(key);
    return [
      make("h3", {}, `Where a balance comes from: ${label}`),
      idsOf({ type, party, market: market || "none" }),
      momentField(),
      facts(explanation),
      sheet("The row that it rests on, and those beside it", cited),
    ];
  },
  async notes() {
    const { coverage, limits } = await look("notes");
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
  const wanted = JSON.stringify([
    one.id,
    tab,
    when,
    focus,
    page,
    digits,
    party,
    by,
    hidden,
    preset(range),
    own,
  ]);
  if (wanted === inPanel) return;
  inPanel = wanted;
  for (const each of at("tabs").children) {
    each.setAttribute("aria-selected", String(each.dataset.tab === tab));
    each.tabIndex = each.dataset.tab === tab ? 0 : -1;
  }
  at("panel").setAttribute("aria-labelledby", `tab-${tab}`);
  asked = [];
  const parts = await PANELS[tab]().catch((error) => error);
  if (inPanel !== wanted) return;
  if (parts instanceof Error) {
    inPanel = null;
    if (parts.name !== "AbortError") refill(at("panel"), [refusal(parts, again)]);
    return;
  }
  draws = parts.filter((part) => typeof part === "function");
  refill(at("panel"), [...parts.filter((part) => typeof part !== "function"), ...dataParts()]);
  drawPanel();
};
