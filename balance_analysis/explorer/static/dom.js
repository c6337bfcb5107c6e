// Work with the document's elements, whatever they show.

export const at = (id) => document.getElementById(id);

/** Make an element; its content is text or other elements, never markup. */
export const make = (tag, attributes = {}, ...content) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (typeof value === "boolean") made.toggleAttribute(name, value);
    else if (value !== undefined && value !== null) made.setAttribute(name, value);
  }
  made.append(...content);
  return made;
};

export const button = (text, onclick, attributes = {}) =>
  make("button", { type: "button", onclick, ...attributes }, text);

/** Make a select; its options are pairs of value and text. */
export const select = (options, chosen, onchange) => {
  const made = options.map(([value, text]) =>
    make("option", { value, selected: value === chosen }, text),
  );
  return make("select", { onchange: ({ target }) => onchange(target.value) }, ...made);
};

/** Give a file to whoever reads the page. */
export const save = (name, content, type) => {
  const url = URL.createObjectURL(new Blob([content], { type }));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
};

/** Return a button that copies what `textOf` returns; hidden where a page may not copy. */
export const copier = (label, textOf) => {
  const copy = async ({ target }) => {
    const said = await navigator.clipboard.writeText(textOf()).then(
      () => "Copied",
      () => "Not allowed",
    );
    target.textContent = said;
    setTimeout(() => {
      target.textContent = "Copy";
    }, 1500);
  };
  const name = `Copy ${label}`;
  const hidden = !navigator.clipboard;
  return button("Copy", copy, { class: "copy", hidden, "aria-label": name, title: name });
};

/** Return an amount; with `run`, a button that shows where it comes from. */
export const linked = (text, run) =>
  run ? button(text, run, { class: "origin", title: "Where it comes from" }) : text;

const WHOLE = /(\d{4}-\d\d-\d\d(?:[ T][\d:.]+Z?)?|https?:\/\/\S+)/;

/** Return a text as parts; dates and addresses break nowhere. */
export const unbroken = (text) =>
  text.split(WHOLE).map((part, n) => (n % 2 ? make("span", { class: "whole" }, part) : part));

export const note = (text, ...more) => make("p", { class: "note" }, ...unbroken(text), ...more);

/** Return what went wrong; where it may be over, with a button that tries again. */
export const refusal = (error, again) => {
  const more = error.isFinal ? [] : [" ", button("Try again", again)];
  return make("p", { class: "note", role: "alert" }, error.message, ...more);
};

export const settled = (run, wait) => {
  let timer;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => run(...given), wait);
  };
};

/** Put new parts into a box; the focus stays on what it was on, where that is still there. */
export const refill = (box, parts) => {
  const name = (one) => one.ariaLabel ?? one.textContent;
  const held = document.activeElement;
  const wanted = box.contains(held) ? name(held) : null;
  box.replaceChildren(...parts);
  if (wanted === null) return;
  const again = [...box.querySelectorAll("button, input, select")];
  (again.find((one) => name(one) === wanted) ?? box).focus({ preventScroll: true });
};
