// Elements that several parts of the page share.
import { again } from "./address.js";
import { button, make } from "./dom.js";

/** Return the CSS class with the colour of a place; places beyond the last colour are dashed. */
export const inkOf = (place) => `s${place % 8}${place < 8 ? "" : " dashed"}`;

/** Return a button that copies the text of `textOf`; hidden if the page may not copy. */
export const copier = (label, textOf) => {
  const copy = async ({ target }) => {
    target.textContent = await navigator.clipboard.writeText(textOf()).then(
      () => "Copied",
      () => "Not allowed",
    );
    setTimeout(() => {
      target.textContent = "Copy";
    }, 1500);
  };
  const name = `Copy ${label}`;
  const hidden = !navigator.clipboard;
  return button("Copy", copy, { class: "copy", hidden, "aria-label": name, title: name });
};

/** Return a button that leads to an account or a party. */
export const link = (text, run, title) => button(unbroken(text), run, { class: "link", title });

/** Return an amount; with `run`, a button that shows where it comes from. */
export const linked = (text, run) =>
  run ? button(text, run, { class: "origin", title: "Where it comes from" }) : text;

const WHOLE = /(\d{4}-\d\d-\d\d(?:[ T][\d:.]+Z?)?|https?:\/\/\S+|\S{1,6}…\S{1,4})/;

/** Return a text as parts; lines don't break inside dates, addresses and short ids. */
export const unbroken = (text) =>
  text.split(WHOLE).map((part, n) => (n % 2 ? make("span", { class: "whole" }, part) : part));

export const note = (text, ...more) => make("p", { class: "note" }, ...unbroken(text), ...more);

/** Return an error's message; if the error may be temporary, with a button to try again. */
export const refusal = (error, run = again) => {
  const more = !error.isFinal && button("Try again", run);
  return make("p", { class: "note", role: "alert" }, error.message, more && " ", more);
};

export const swatch = (place) =>
  make("span", { class: `swatch ${inkOf(place)}`, "aria-hidden": "true" });

export const tools = (...parts) => make("div", { class: "tools" }, ...parts);
