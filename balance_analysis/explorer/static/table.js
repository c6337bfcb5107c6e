// Tables that sort, filter and download; what they hold is told by the columns' kinds.
import { copier, linked, make, save } from "./dom.js";
import { account, amount, briefly, called, count, instant, kindOf, meaning, moment, places, ratio, rounded, words } from "./text.js";

const PRINTED = 250; // rows on paper

const SHOWN = { moment, ratio, count, flag: (value) => (value ? "yes" : "no"), text: (value) => value ?? "" };

/** Write a value as its kind is written. */
export const shown = (value, kind, decimals) => (kind === "amount" ? amount(value, decimals) : SHOWN[kind](value));

/** Sort rows by a column; what is not known comes last either way. */
const sorted = (rows, place, kind, down) => rows.toSorted(([one], [other]) => {
  const [a, b] = [one[place], other[place]].map((value) => (kind === "amount" && value !== null ? BigInt(value) : value));
  if (a === null || b === null) return (a === null) - (b === null);
  return (down ? -1 : 1) * (a < b ? -1 : Number(a > b));
});

/** Write text as a cell: with an apostrophe before what a spreadsheet would run, as `write_table` does. */
const cell = (text) => {
  const safe = text.replace(/^[=+\-@\t\r\n]/, "'$&");
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
};

const FILED = { amount: (value, decimals) => amount(value, decimals, true), moment: instant, text: cell };

/** Return what writes the cells of a column: short, as they are all read together, unless every digit is asked for. */
const writer = ({ name, kind }, cells, decimals, isExact) => {
  if (isExact || !["amount", "moment"].includes(kind)) return (value) => shown(value, kind, decimals);
  if (kind === "moment") return briefly(cells, name === "timestamp");
  const to = places(cells, decimals);
  return (value) => rounded(value, decimals, to);
};

/** Return a table as text, each value whole. */
const filed = (columns, rows, decimals, by) => {
  const lines = rows.map((row) => row.map((value, n) => {
    const { name: column, kind } = columns[n];
    if (value === null) return "";
    if (column !== "account") return FILED[kind]?.(value, decimals) ?? String(value);
    const { asset, type, party, market } = account(value);
    return [asset, type, party, market].map(cell).join(by);
  }).join(by));
  const heads = columns.flatMap((one) => (one.name === "account" ? ["asset_id", "account_type", "party_id", "market_id"] : [one.name]));
  return [heads.join(by), ...lines, ""].join("\n");
};

/** Return a table; `choose` is called with the key of an account that is clicked, and `origin` returns what tells where an amount comes from. */
export const table = (caption, sheet, { decimals = 0, isExact, choose, chooseParty, origin, note, name = "table" } = {}) => {
  const { columns } = sheet, writers = columns.map((column, n) => writer(column, sheet.rows.map((row) => row[n]), decimals, isExact));
  const isNumber = columns.map(({ kind }) => !["text", "moment", "flag"].includes(kind));
  const texts = sheet.rows.map((row) => row.map((value, n) => (columns[n].name === "account" ? account(value).text
    : `${shown(value, columns[n].kind, decimals)} ${writers[n](value)} ${columns[n].name === "account_type" ? kindOf(value) : ""}`)).join(" ").toLowerCase());
  const all = sheet.rows.map((row, n) => [row, texts[n]]), long = innerWidth < 960 ? 10 : 20;
  const file = (by) => filed(columns, rows.map(([row]) => row), decimals, by);
  let rows = all, start = 0;
  const cell = (value, n, row) => {
    const { name: column, kind } = columns[n], text = column === "account_type" ? kindOf(value) : writers[n](value), whole = shown(value, kind, decimals);
    const data = { class: `${kind} ${isNumber[n] ? "n" : ""}`, "data-name": words(column), title: ["amount", "moment"].includes(kind) && whole !== text ? whole : undefined };
    if (column === "party_id" && chooseParty) return make("td", data, make("button", { type: "button", class: "link", title: value, onclick: () => chooseParty(value) }, called(value)));
    if (column !== "account") return make("td", data, linked(text, origin?.(column, Object.fromEntries(columns.map((one, place) => [one.name, row[place]])))));
    const { label, ids, party } = account(value), all = chooseParty && make("button", { type: "button", class: "of-party", title: `All accounts of ${party}`, "aria-label": `party ${called(party)}`, onclick: () => chooseParty(party) }, "party");
    return make("td", {}, make("button", { type: "button", class: "link", title: ids, onclick: () => choose(value) }, label), ...(all ? [" ", all] : []));
  };
  const body = make("tbody"), tally = make("output"), place = make("output"), printed = make("p", { class: "printed" });
  const turn = (by) => { start += by; fill(); };
  const [back, on] = [["Previous", -long], ["Next", long]].map(([text, by]) => make("button", { type: "button", onclick: () => turn(by) }, text));
  const pages = make("div", { class: "tools" }, back, on, place);
  const fill = () => {
    body.replaceChildren(...rows.slice(start, start + PRINTED).map(([row], n) => make("tr", { class: n < long ? undefined : "off" }, ...row.map(cell))));
    const last = Math.min(start + long, rows.length), of = rows.length < all.length ? `${count(rows.length)} of ` : "";
    [back.disabled, on.disabled, pages.hidden] = [start === 0, last === rows.length, rows.length <= long];
    tally.value = `${of}${count(all.length)} ${all.length === 1 ? "row" : "rows"}`;
    place.value = `${count(start + 1)} to ${count(last)} of ${count(rows.length)}`;
    printed.textContent = rows.length > start + PRINTED ? `Rows ${count(start + 1)} to ${count(start + PRINTED)} of ${count(rows.length)}.` : "";
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
    const button = make("button", { type: "button", onclick: sort, title: meaning(column) }, words(column));
    return make("th", { scope: "col", class: isNumber[n] ? "n" : undefined, "data-name": words(column) }, button);
  });
  const field = make("input", { type: "search", autocomplete: "off", "aria-label": `Filter ${caption}`, placeholder: "Filter" });
  field.addEventListener("input", () => {
    const wanted = field.value.trim().toLowerCase();
    rows = all.filter(([, text]) => text.includes(wanted));
    turn(-start);
  });
  fill();
  return make("section", { class: "sheet" },
    make("div", { class: "tools" }, make("h3", {}, caption), tally, field,
      copier(caption, () => file("\t")), make("button", { type: "button", onclick: () => save(`${name}.csv`, file(","), "text/csv") }, "Download CSV")),
    ...(note ? [make("p", { class: "note" }, note)] : []),
    make("table", { "aria-label": caption }, make("thead", {}, make("tr", {}, ...heads)), body),
    pages, printed);
};
