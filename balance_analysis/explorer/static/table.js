// Tables that sort, filter and download; the kinds of their columns say how values are written.
import { button, copier, linked, make, note, save } from "./dom.js";
import {
  account,
  amount,
  briefly,
  called,
  count,
  hasWords,
  instant,
  kindOf,
  many,
  meaning,
  moment,
  places,
  printable,
  ratio,
  rounded,
  searched,
  words,
} from "./text.js";

const PRINTED = 250; // rows on paper
const IDS = ["asset_id", "account_type", "party_id", "market_id"];
const SHOWN = {
  moment,
  ratio,
  count,
  flag: (value) => (value ? "yes" : "no"),
  text: (value) => printable(value ?? ""),
};

/** Write a value as its kind is written. */
export const shown = (value, kind, decimals) =>
  kind === "amount" ? amount(value, decimals) : SHOWN[kind](value);

/** Return the cells of a column by its name. */
export const column = ({ columns, rows }, name) => {
  const place = columns.findIndex((one) => one.name === name);
  return rows.map((row) => row[place]);
};

/** Return the first row as an object; without a row, every value is null. */
export const firstRow = ({ columns, rows: [row = []] }) =>
  Object.fromEntries(columns.map(({ name }, n) => [name, row[n] ?? null]));

/** Sort rows by a column; what is not known comes last either way. */
const sorted = (rows, place, kind, down) => {
  const valueOf = (row) =>
    kind === "amount" && row[place] !== null ? BigInt(row[place]) : row[place];
  return rows.toSorted((one, other) => {
    const [a, b] = [valueOf(one), valueOf(other)];
    if (a === null || b === null) return (a === null) - (b === null);
    return (down ? -1 : 1) * (a < b ? -1 : Number(a > b));
  });
};

/** Write text as a cell: with an apostrophe before what a spreadsheet would run, as `write_table` does. */
const cellText = (text) => {
  const safe = text.replace(/^[=+\-@\t\r\n]/, "'$&");
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
};

const FILED = {
  amount: (value, decimals) => amount(value, decimals, true),
  moment: instant,
  text: cellText,
};

/** Return a table as text: each value whole, amounts in the unit of the last column. */
const filed = ({ columns }, rows, { decimals, unit }, by) => {
  const hasUnit = columns.some(({ kind }) => kind === "amount");
  const cells = (value, { name, kind }) => {
    if (name === "account") {
      const { asset, type, party, market } = account(value);
      return [asset, type, party, market].map(cellText);
    }
    return value === null ? "" : (FILED[kind]?.(value, decimals) ?? String(value));
  };
  const heads = columns.flatMap(({ name }) => (name === "account" ? IDS : name));
  const lines = rows.map((row) => row.flatMap((value, n) => cells(value, columns[n])));
  const units = hasUnit ? [["unit"], ...rows.map(() => [cellText(unit)])] : [];
  return [heads, ...lines]
    .map((line, n) => [...line, ...(units[n] ?? [])].join(by) + "\n")
    .join("");
};

/** Return what writes the cells of a column: short, unless every digit is asked for. */
const writer = ({ name, kind }, cells, { decimals, isExact }) => {
  if (name === "account_type") return kindOf;
  if (kind === "moment" && !isExact) return briefly(cells, name === "timestamp");
  if (kind !== "amount" || isExact) return (value) => shown(value, kind, decimals);
  const to = places(cells, decimals);
  return (value) => rounded(value, decimals, to);
};

/** Make a table's cell of an account: its label, and its party. */
const accountCell = (key, { open, openParty }) => {
  const { label, ids, party } = account(key);
  const label_ = button(label, () => open(key), { class: "link", title: ids });
  const name = `party ${called(party)}`;
  const run = () => openParty(party);
  const all =
    openParty && button("party", run, { class: "of-party", title: name, "aria-label": name });
  return make("td", {}, label_, ...(all ? [" ", all] : []));
};

/**
 * Return a table under its caption. `decimals` and `unit` are those of its amounts, `isExact` asks
 * for all digits; `open` and `openParty` take what is clicked, `origin` returns what shows where an
 * amount comes from.
 */
export const table = (caption, sheet, options) => {
  const { columns } = sheet;
  const { decimals, note: said, origin, openParty, name, none = "No known rows." } = options;
  const cellsOf = (n) => sheet.rows.map((row) => row[n]);
  const writers = columns.map((one, n) => writer(one, cellsOf(n), options));
  const isNumber = columns.map(({ kind }) => !["text", "moment", "flag"].includes(kind));
  const textOf = (row) =>
    row
      .map((value, n) => {
        if (columns[n].name === "account") return searched(value);
        return `${shown(value, columns[n].kind, decimals)} ${writers[n](value)} ${value}`;
      })
      .join(" ");
  const texts = new Map(sheet.rows.map((row) => [row, textOf(row)]));
  const long = innerWidth < 960 ? 10 : 20;
  let { rows } = sheet;
  let start = 0;

  const cell = (value, n, row) => {
    const { name: column, kind } = columns[n];
    if (column === "account") return accountCell(value, options);
    const text = writers[n](value);
    const whole = shown(value, kind, decimals);
    const title = kind === "text" || whole !== text ? whole : undefined;
    const length = text.length > 24 && kind === "amount" ? "long" : "";
    const data = {
      class: `${kind} ${isNumber[n] ? "n" : ""} ${length}`,
      "data-name": words(column),
      title,
    };
    if (column === "party_id" && openParty) {
      const run = () => openParty(value);
      return make(
        "td",
        data,
        button(called(value), run, { class: "link", title: printable(value) }),
      );
    }
    const values = Object.fromEntries(columns.map((one, place) => [one.name, row[place]]));
    return make("td", data, linked(text, origin?.(column, values)));
  };

  const body = make("tbody");
  const tally = make("output");
  const place = make("output");
  const printed = make("p", { class: "printed" });
  const turn = (by) => {
    start += by;
    fill();
  };
  const back = button("Previous", () => turn(-long));
  const on = button("Next", () => turn(long));
  const pages = make("div", { class: "tools" }, back, on, place);
  const fill = () => {
    const line = (row, n) =>
      make(
        "tr",
        { class: n < long ? undefined : "off" },
        ...row.map((each, at) => cell(each, at, row)),
      );
    body.replaceChildren(...rows.slice(start, start + PRINTED).map(line));
    const last = Math.min(start + long, rows.length);
    [back.disabled, on.disabled, pages.hidden] = [
      start === 0,
      last === rows.length,
      rows.length <= long,
    ];
    const part = rows.length < sheet.rows.length ? `${count(rows.length)} of ` : "";
    tally.value = part + many(sheet.rows.length, "row");
    place.value = `${count(start + 1)} to ${count(last)} of ${count(rows.length)}`;
    const isCut = rows.length > start + PRINTED;
    const onPaper = `Rows ${count(start + 1)} to ${count(start + PRINTED)} of ${count(rows.length)}.`;
    printed.textContent = isCut ? onPaper : "";
  };

  const heads = columns.map(({ name: column, kind }, n) => {
    const sort = () => {
      const old = heads[n].getAttribute("aria-sort");
      const down = old ? old === "ascending" : isNumber[n];
      for (const head of heads) head.removeAttribute("aria-sort");
      heads[n].setAttribute("aria-sort", down ? "descending" : "ascending");
      rows = sorted(rows, n, kind, down);
      turn(-start);
    };
    const own = { scope: "col", class: isNumber[n] ? "n" : undefined, "data-name": words(column) };
    return make("th", own, button(words(column), sort, { title: meaning(column) }));
  });
  const filter = ({ target: { value } }) => {
    rows = sheet.rows.filter((row) => hasWords(texts.get(row), value.trim()));
    turn(-start);
  };
  const label = `Filter ${caption}`;
  const field = { type: "search", autocomplete: "off", placeholder: "Filter", "aria-label": label };
  const file = (by) => filed(sheet, rows, options, by);
  fill();
  const tools = make(
    "div",
    { class: "tools" },
    make("h3", { title: caption }, caption),
    ...(sheet.rows.length ? [tally] : []),
    make("input", { ...field, oninput: filter }),
    copier(caption, () => file("\t")),
    button("Download CSV", () => save(`${name}.csv`, file(","), "text/csv")),
  );
  const grid = make(
    "table",
    { "aria-label": caption },
    make("thead", {}, make("tr", {}, ...heads)),
    body,
  );
  return make(
    "section",
    { class: "sheet" },
    tools,
    ...(said ? [note(said)] : []),
    sheet.rows.length ? make("div", { class: "wide" }, grid) : note(none),
    pages,
    printed,
  );
};
