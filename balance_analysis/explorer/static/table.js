// Tables to sort, filter and download; a column's kind decides how its values are written.
import { isFrozen, open, openParty, state } from "./address.js";
import { button, make, save } from "./dom.js";
import { account, called, hasWords, kindOf, meaning, searched, words } from "./names.js";
import { copier, link, linked, note, tools } from "./parts.js";
import { amount, briefly, count, instant, many, places, rounded, shown } from "./text.js";
import { unitOf } from "./unit.js";

const PRINTED = 250; // rows on paper
const IDS = ["asset_id", "account_type", "party_id", "market_id"];

/** Return a column's cells. */
export const column = ({ columns, rows }, name) => {
  const place = columns.findIndex((one) => one.name === name);
  return rows.map((row) => row[place]);
};

const asObject = (columns, row) =>
  Object.fromEntries(columns.map(({ name }, n) => [name, row[n] ?? null]));

/** Return the first row as an object; if there is no row, every value is null. */
export const firstRow = ({ columns, rows: [row = []] }) => asObject(columns, row);

const hasAmounts = (columns) => columns.some(({ kind }) => kind === "amount");

/** Sort rows by a column; unknown values come last in both directions. */
const sorted = (rows, place, kind, down) => {
  const valueOf = (cell) => (kind === "amount" && cell !== null ? BigInt(cell) : cell);
  return rows.toSorted((one, other) => {
    const [a, b] = [valueOf(one[place]), valueOf(other[place])];
    if (a === null || b === null) return (a === null) - (b === null);
    return (down ? -1 : 1) * (a < b ? -1 : Number(a > b));
  });
};

/** Write text as a cell; as in `write_table`, an apostrophe precedes text that a spreadsheet would run. */
const cellText = (text) => {
  const safe = text.replace(/^[=+\-@\t\r\n]/, "'$&");
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
};

const FILED = {
  amount: (value, decimals) => amount(value, decimals, true),
  moment: instant,
  text: cellText,
};

/** Return a table as text, with every digit; the last column is the unit of amounts. */
const filed = ({ columns }, rows, of, by) => {
  const cells = (value, { name, kind }) => {
    if (name === "account") {
      const { asset, type, party, market } = account(value);
      return [asset, type, party, market].map(cellText);
    }
    return value === null ? "" : (FILED[kind]?.(value, of.decimals ?? 0) ?? String(value));
  };
  const hasUnit = hasAmounts(columns);
  const heads = columns.flatMap(({ name }) => (name === "account" ? IDS : name));
  const unit = cellText(unitOf(of));
  const lines = rows.map((row) => [
    ...row.flatMap((value, n) => cells(value, columns[n])),
    ...(hasUnit ? [unit] : []),
  ]);
  const all = [hasUnit ? [...heads, "unit"] : heads, ...lines];
  return all.map((line) => `${line.join(by)}\n`).join("");
};

/** Return the function that writes a column's cells: short, unless the user wants all digits. */
const writer = ({ name, kind }, cells, decimals) => {
  if (name === "account_type") return kindOf;
  if (kind === "moment" && !state.digits) return briefly(cells, name === "timestamp");
  if (kind !== "amount" || state.digits) return (value) => shown(value, kind, decimals);
  const to = places(cells, decimals);
  return (value) => rounded(value, decimals, to);
};

/** Return an account's cell: its label, and with `hasParties` a button to its party. */
const accountParts = (key, hasParties) => {
  const { label, ids, party } = account(key);
  const name = `party ${called(party)}`;
  const data = { class: "of-party", title: name, "aria-label": name };
  const more = hasParties ? [" ", button("party", () => openParty(party), data)] : [];
  return [link(label, () => open(key), ids), ...more];
};

/** Show each row on several lines if the table is too wide. */
const fit = ({ target: box }) => {
  box.classList.remove("stacked");
  box.classList.toggle("stacked", box.scrollWidth > box.clientWidth);
};

/**
 * Return a table under its caption. Amounts are in the asset `of`, by default the chosen one. `note`
 * stands above the table; `none` replaces it if it is empty. `origin` returns a function that shows
 * where an amount comes from.
 */
export const table = (caption, content, options = {}) => {
  const { of = state.asset, note: said, origin, none = "No known rows." } = options;
  const { columns, rows: all } = content;
  const decimals = of.decimals ?? 0;
  const hasParties = !isFrozen && state.tab !== "party";
  const heading = hasAmounts(columns) ? `${caption}, in ${unitOf(of)}` : caption;
  const cellsOf = (n) => all.map((row) => row[n]);
  const writers = columns.map((one, n) => writer(one, cellsOf(n), decimals));
  const isNumber = columns.map(({ kind }) => !["text", "moment", "flag"].includes(kind));
  const textOf = (value, n) => {
    if (columns[n].name === "account") return searched(value);
    return `${shown(value, columns[n].kind, decimals)} ${writers[n](value)} ${value}`;
  };
  const texts = new Map(all.map((row) => [row, row.map(textOf).join(" ")]));
  const long = innerWidth < 960 ? 10 : 20;
  let rows = all;
  let start = 0;

  const cell = (value, n, row) => {
    const { name, kind } = columns[n];
    if (name === "account") return make("td", {}, ...accountParts(value, hasParties));
    const text = writers[n](value);
    const whole = shown(value, kind, decimals);
    const length = text.length > 24 && kind === "amount" ? "long" : "";
    const data = {
      class: `${kind} ${isNumber[n] ? "n" : ""} ${length}`,
      "data-name": words(name),
      title: kind === "text" || whole !== text ? whole : undefined,
    };
    const isParty = name === "party_id" && hasParties;
    const party = isParty && link(called(value), () => openParty(value), whole);
    return make("td", data, party || linked(text, origin?.(name, asObject(columns, row))));
  };

  const body = make("tbody");
  const tally = make("output");
  const place = make("output");
  const printed = make("p", { class: "printed" });
  const turn = (by) => {
    start += by;
    fill();
    fit({ target: wide });
  };
  const back = button("Previous", () => turn(-long));
  const on = button("Next", () => turn(long));
  const pages = tools(back, on, place);
  const fill = () => {
    const line = (row, n) => {
      const cells = row.map((value, at) => cell(value, at, row));
      return make("tr", { class: n < long ? undefined : "off" }, ...cells);
    };
    body.replaceChildren(...rows.slice(start, start + PRINTED).map(line));
    const [first, number] = [count(start + 1), rows.length];
    const last = Math.min(start + long, number);
    back.disabled = start === 0;
    on.disabled = last === number;
    pages.hidden = number <= long;
    tally.value = (number < all.length ? `${count(number)} of ` : "") + many(all.length, "row");
    place.value = `${first} to ${count(last)} of ${count(number)}`;
    const onPaper = `Rows ${first} to ${count(start + PRINTED)} of ${count(number)}.`;
    printed.textContent = number > start + PRINTED ? onPaper : "";
  };

  const heads = columns.map(({ name, kind }, n) => {
    const sort = () => {
      const old = heads[n].getAttribute("aria-sort");
      const down = old ? old === "ascending" : isNumber[n];
      for (const head of heads) head.removeAttribute("aria-sort");
      heads[n].setAttribute("aria-sort", down ? "descending" : "ascending");
      rows = sorted(rows, n, kind, down);
      turn(-start);
    };
    const own = { scope: "col", class: isNumber[n] ? "n" : undefined, "data-name": words(name) };
    return make("th", own, button(words(name), sort, { title: meaning(name) }));
  });
  const filter = make("input", {
    type: "search",
    autocomplete: "off",
    placeholder: "Filter",
    "aria-label": `Filter ${heading}`,
    oninput: ({ target: { value } }) => {
      rows = all.filter((row) => hasWords(texts.get(row), value.trim()));
      turn(-start);
    },
  });
  const file = (by) => filed(content, rows, of, by);
  const name = `${caption.toLowerCase().replaceAll(/\W+/g, "-")}.csv`;
  fill();
  const head = make("thead", {}, make("tr", {}, ...heads));
  const grid = make("table", { "aria-label": heading }, head, body);
  const wide = make("div", { class: "wide", ondraw: fit }, grid);
  return make(
    "section",
    { class: "sheet" },
    tools(
      make("h3", { title: heading }, heading),
      all.length && tally,
      filter,
      copier(heading, () => file("\t")),
      button("Download CSV", () => save(name, file(","), "text/csv")),
    ),
    said && note(said),
    all.length ? wide : note(none),
    pages,
    printed,
  );
};
