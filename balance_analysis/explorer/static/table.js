// Tables that sort, filter and download; what they hold is told by the columns' kinds.
import { account, amount, count, make, moment, ratio } from "./text.js";

const LONG = 250; // rows that are shown at once

const words = (name) => name.replaceAll("_", " ");

export const shown = (value, kind, decimals, plain = false) => {
  if (kind === "amount") return amount(value, decimals, plain);
  if (kind === "moment") return moment(value);
  if (kind === "ratio") return plain ? String(value ?? "") : ratio(value);
  if (kind === "count") return plain ? String(value ?? "") : count(value);
  if (kind === "flag") return value ? "yes" : "no";
  return value ?? "";
};

const compare = (kind) => (a, b) => {
  if (kind === "amount") [a, b] = [BigInt(a), BigInt(b)];
  return a < b ? -1 : a > b ? 1 : 0;
};

/** Sort rows by a column; what is not known comes last either way. */
const sorted = (rows, place, kind, down) => {
  const order = compare(kind);
  return rows.toSorted(([a], [b]) => {
    if (a[place] === null || b[place] === null) return (a[place] === null) - (b[place] === null);
    return (down ? -1 : 1) * order(a[place], b[place]);
  });
};

const download = (name, columns, rows, decimals) => {
  // A text that a spreadsheet would run as a formula is quoted like one that has a comma.
  const cell = (text) => (/[",\n\r]|^[=+@\t]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const lines = rows.map((row) => row.map((value, n) => {
    const { name: column, kind } = columns[n];
    if (column !== "account") return cell(value === null ? "" : shown(value, kind, decimals, true));
    const { asset, type, party, market } = account(value);
    return [asset, type, party, market].map(cell).join(",");
  }).join(","));
  const heads = columns.map((one) => one.name === "account" ? "asset_id,account_type,party_id,market_id" : one.name);
  const url = URL.createObjectURL(new Blob([[heads.join(","), ...lines, ""].join("\n")], { type: "text/csv" }));
  make("a", { href: url, download: `${name}.csv` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
};

/** Return a table; `choose` is called with the key of an account that is clicked. */
export const table = (caption, sheet, { decimals = 0, choose, note, name = "table" } = {}) => {
  const { columns } = sheet;
  const isNumber = columns.map(({ kind }) => !["text", "moment", "flag"].includes(kind));
  const texts = sheet.rows.map((row) => row.map((value, n) => {
    if (columns[n].name !== "account") return shown(value, columns[n].kind, decimals);
    const one = account(value);
    return `${one.words} ${one.type} ${one.party} ${one.market}`;
  }).join(" ").toLowerCase());
  const all = sheet.rows.map((row, n) => [row, texts[n]]);
  let rows = all, most = LONG;
  const cell = (value, n) => {
    if (columns[n].name !== "account") {
      return make("td", { class: isNumber[n] ? "n" : undefined }, shown(value, columns[n].kind, decimals));
    }
    const { label, party, market } = account(value);
    const title = [party, market].filter(Boolean).join(" · ");
    return make("td", {}, make("button", { type: "button", class: "link", title, onclick: () => choose(value) }, label));
  };
  const body = make("tbody");
  const tally = make("output");
  const more = make("button", { type: "button", onclick: () => { most = Infinity; fill(); } }, "Show all");
  const fill = () => {
    body.replaceChildren(...rows.slice(0, most).map(([row]) => make("tr", {}, ...row.map(cell))));
    more.hidden = rows.length <= most;
    const of = rows.length < all.length ? `${count(rows.length)} of ` : "";
    tally.value = `${of}${count(all.length)} ${all.length === 1 ? "row" : "rows"}`;
  };
  const heads = columns.map(({ name: column, kind }, n) => {
    const sort = () => {
      const old = heads[n].getAttribute("aria-sort");
      const down = old ? old === "ascending" : isNumber[n];
      for (const head of heads) head.removeAttribute("aria-sort");
      heads[n].setAttribute("aria-sort", down ? "descending" : "ascending");
      rows = sorted(rows, n, kind, down);
      fill();
    };
    const button = make("button", { type: "button", onclick: sort }, words(column));
    return make("th", { scope: "col", class: isNumber[n] ? "n" : undefined }, button);
  });
  const field = make("input", { type: "search", autocomplete: "off", "aria-label": `Filter ${caption}`, placeholder: "Filter" });
  field.addEventListener("input", () => {
    const wanted = field.value.trim().toLowerCase();
    rows = all.filter(([, text]) => text.includes(wanted));
    fill();
  });
  fill();
  return make("section", { class: "sheet" },
    make("div", { class: "tools" }, make("h3", {}, caption), tally, field,
      make("button", { type: "button", onclick: () => download(name, columns, rows.map(([row]) => row), decimals) }, "CSV")),
    ...(note ? [make("p", { class: "note" }, note)] : []),
    make("div", { class: "box", tabindex: "0", role: "region", "aria-label": caption },
      make("table", { "aria-label": caption }, make("thead", {}, make("tr", {}, ...heads)), body)),
    more);
};
