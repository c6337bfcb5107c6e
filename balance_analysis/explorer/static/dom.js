// What is done with the document's elements, whatever they show.

/** Make an element; what is put into it is text or other elements, never markup. */
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

/** Give a file to whoever reads the page. */
export const save = (name, content, type) => {
  const url = URL.createObjectURL(new Blob([content], { type }));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
};

/** Return a button that copies what `tell` returns; where a page may not copy, it is not there. */
export const copier = (label, tell) => {
  const button = make("button", { type: "button", class: "copy", hidden: !navigator.clipboard, "aria-label": `Copy ${label}`, title: `Copy ${label}`, onclick: async () => {
    await navigator.clipboard.writeText(tell()).then(() => { button.textContent = "Copied"; }, () => { button.textContent = "Not allowed"; });
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  } }, "Copy");
  return button;
};

/** Return an amount that tells by a click where it comes from, where something tells that. */
export const linked = (text, run) => (run ? make("button", { type: "button", class: "origin", title: "Where it comes from", onclick: run }, text) : text);

export const at = (id) => document.getElementById(id);

export const settled = (run, wait) => {
  let timer;
  return (...given) => { clearTimeout(timer); timer = setTimeout(() => run(...given), wait); };
};

/** Say above the chart that something failed. */
export const fail = (error) => {
  if (error.name === "AbortError") return;
  at("failed").textContent = error.message;
  at("failed").hidden = false;
};

/** Put new parts into a box, and leave the focus on what it was on, where that is still there. */
export const refill = (box, parts) => {
  const name = (one) => one.ariaLabel ?? one.textContent, held = document.activeElement;
  const wanted = box.contains(held) && name(held);
  box.replaceChildren(...parts);
  if (wanted !== false) ([...box.querySelectorAll("button, input, select")].find((one) => name(one) === wanted) ?? box).focus({ preventScroll: true });
};
