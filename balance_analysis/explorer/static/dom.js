// Helpers for the document's elements.

export const at = (id) => document.getElementById(id);

export const hear = (target, events) => {
  for (const [name, run] of Object.entries(events)) target.addEventListener(name, run);
};

/** Make an element; its content is text or other elements, never markup. False or empty content is omitted. */
export const make = (tag, attributes = {}, ...content) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (typeof value === "boolean") made.toggleAttribute(name, value);
    else if (value !== undefined && value !== null) made.setAttribute(name, value);
  }
  made.append(...content.filter(Boolean));
  return made;
};

export const button = (content, onclick, attributes = {}) =>
  make("button", { type: "button", onclick, ...attributes }, ...[content].flat());

/** Make a select; its options are pairs of value and text. */
export const select = (options, chosen, onchange) => {
  const made = options.map(([value, text]) => make("option", { value }, text));
  const all = make("select", { onchange: ({ target }) => onchange(target.value) }, ...made);
  all.value = chosen;
  return all;
};

/** Let the browser download a file. */
export const save = (name, content, type) => {
  const url = URL.createObjectURL(new Blob([content], { type }));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
};

/** Return a function that asks and shows the answer or error, unless that one is shown already or a newer question was asked meanwhile. */
export const newest = (show) => {
  let last;
  return async (question, ask) => {
    const wanted = JSON.stringify(question);
    if (last === wanted) return;
    last = wanted;
    const answer = await ask().catch((error) => error);
    if (last !== wanted) return;
    if (answer instanceof Error) last = null; // it may be asked again
    if (answer?.name !== "AbortError") show(answer);
  };
};

export const settled = (run, wait) => {
  let timer;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => run(...given), wait);
  };
};

/** Put new parts into a box; the focus stays on its element if that is still there. */
export const refill = (box, parts) => {
  const name = (one) => one.ariaLabel ?? one.textContent;
  const held = document.activeElement;
  const wanted = box.contains(held) ? name(held) : null;
  box.replaceChildren(...parts.filter(Boolean));
  if (wanted === null) return;
  const again = [...box.querySelectorAll("button, input, select")];
  (again.find((one) => name(one) === wanted) ?? box).focus({ preventScroll: true });
};
