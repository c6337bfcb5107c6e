// Fields for moments, in UTC: text as people write it, with the browser's own picker of days beside it.
import { about, between, when, zoom } from "./address.js";
import { shape } from "./chart.js";
import { at, make } from "./dom.js";
import { DAY, micros, moment } from "./text.js";

/** Return what picks a day for a field, which then has changed. */
export const picker = (field, label) => {
  const day = (time) => moment(Math.min(Math.max(time, about.start), about.end)).slice(0, 10);
  const days = make("input", { type: "date", min: day(about.start), max: day(about.end), tabindex: "-1", "aria-hidden": "true", class: "days" });
  days.addEventListener("change", () => {
    field.value = days.value;
    if (days.value) field.dispatchEvent(new Event("change"));
  });
  const onclick = () => {
    days.value = day(momentOf(field.value) || about.end);
    try {
      days.showPicker();
    } catch { // a frame of another page may not: there it is a field of its own
      days.className = "";
      days.focus();
    }
  };
  const icon = shape("svg", { viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true" }, shape("path", { d: "M2 3.5h12v10.5h-12zM2 6.5h12M5 1.5v3.5M11 1.5v3.5" }));
  return make("span", { class: "picker" }, make("button", { type: "button", "aria-label": label, onclick }, icon), days);
};

const AGO = { h: DAY / 24, d: DAY, w: 7 * DAY };
/** Read a moment, in UTC, or how long before the end it is, such as 7d. */
const momentOf = (text) => {
  const [, number, unit] = /^(\d+)([hdw])$/.exec(text.trim()) ?? [];
  return unit ? about.end - number * AGO[unit] : micros(text);
};

/** Return what is wrong with a text that should be a moment, or nothing. */
export const wrongMoment = (text) => (Number.isNaN(momentOf(text))
  ? `${text.trim() ? `“${text.trim()}” can't be read as a moment. Write` : "Give a moment:"} a day such as 2023-04-01, a day and a time such as 2023-04-01 12:30, in UTC, or 7d for seven days before the end.` : "");

/** Say beside fields what is wrong with what stands in them, or that nothing is. */
export const complain = (said, text, fields, wrong = fields) => {
  [said.textContent, said.hidden] = [text, !text];
  for (const field of fields) field.ariaInvalid = String(Boolean(text) && wrong.includes(field));
};

/** Return a field for a moment, which it gives to `run`: none of an empty one. */
export const whenField = (time, run) => {
  const field = make("input", { id: "when", value: time === null ? "" : moment(time), size: "28", autocomplete: "off", placeholder: `the end, ${when(about.end)}`, "aria-errormessage": "not-when" });
  const said = make("p", { id: "not-when", class: "wrong", "aria-live": "assertive", hidden: true });
  field.addEventListener("change", () => {
    const text = field.value.trim() && wrongMoment(field.value);
    complain(said, text, [field]);
    if (!text) run(momentOf(field.value) || null);
  });
  return [make("div", { class: "when" }, make("label", { for: "when" }, "At (UTC)"), make("span", { class: "span" }, field, picker(field, "Pick the day"))), said];
};

const setRange = () => {
  const fields = [at("from"), at("to")], [from, to] = fields.map(({ value: text }) => momentOf(text)), wrong = fields.filter(({ value: text }) => wrongMoment(text));
  const text = wrong.length ? wrongMoment(wrong[0].value) : from >= about.end ? `The data end at ${when(about.end)}.` : from >= to ? "The range has to end after it starts."
    : to <= about.start ? `There is nothing in that range. The data are from ${between([about.start, about.end])}.` : "";
  complain(at("wrong"), text, fields, wrong.length ? wrong : fields);
  if (!text) zoom(from, to);
};

/** Begin to listen to the fields of the range. */
export const listenToRange = () => {
  for (const [id, label] of [["from", "Pick the day on which it starts"], ["to", "Pick the day on which it ends"]]) {
    at(id).addEventListener("change", setRange);
    at(id).after(picker(at(id), label));
  }
};

export const showRange = (range) => {
  const fields = [at("from"), at("to")];
  fields.forEach((field, n) => {
    field.value = when(range[n]);
    field.size = Math.max(field.value.length, 19);
  });
  complain(at("wrong"), "", fields);
};
