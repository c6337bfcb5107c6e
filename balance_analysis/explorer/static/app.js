// The page: it shows what its address says, and hears what somebody does.
import {
  RANGES,
  about,
  between,
  choose,
  enter,
  gapsIn,
  go,
  goBack,
  isFrozen,
  reread,
  span,
  state,
  zoom,
  zoomBy,
} from "./address.js";
import { get, thaw } from "./data.js";
import { at, make, note, refusal, settled, unbroken } from "./dom.js";
import { drawLines, keysOfChart, listenToSearch, showChart, showLegend } from "./lines.js";
import { drawPanel, showHeadline, showPanel } from "./panels.js";
import { label, meaning, printable } from "./text.js";

const STALE = 5000; // milliseconds between two questions for a newer state
let running = 0;

const toField = (time) => new Date(time / 1e3).toISOString().slice(0, 19);

const showRange = ([start, end]) => {
  for (const [id, time] of Object.entries({ from: start, to: end })) {
    at(id).value = toField(time);
  }
  at("wrong").hidden = true;
  for (const one of at("ranges").children) {
    one.setAttribute("aria-pressed", String(one.textContent === state.range));
  }
};

const showHead = () => {
  const range = span();
  const hit = gapsIn(range);
  const empty = "There is nothing in it yet. Once something is, this page offers to reload.";
  const ofAsset = state.asset ? `${state.asset.label} balances` : "Balances";
  at("title").textContent = about.name;
  document.title = state.asset ? `${state.asset.label} – ${about.name}` : about.name;
  at("chart-h").textContent = at("chart-h").title = ofAsset;
  at("interval").replaceChildren(
    ...unbroken(about.start < about.end ? `${between([about.start, about.end])} UTC` : empty),
  );
  for (const part of document.querySelectorAll(".card, .choices")) part.hidden = !state.asset;
  const option = ({ id, label: text, name }) => {
    const selected = id === state.asset?.id;
    return make("option", { value: id, selected }, name ? `${text} – ${name}` : text);
  };
  at("asset").replaceChildren(...about.assets.map(option));
  at("digits").value = state.digits;
  at("notice").hidden = isFrozen || !hit; // a frozen page says it above
  const said = `Not known to be complete: ${hit}. Balances that may have changed there are unknown.`;
  at("notice").replaceChildren(...unbroken(said));
  showRange(range);
};

const redraw = () => {
  drawLines();
  drawPanel();
};

const refresh = async () => {
  running += 1;
  await Promise.all([showChart(), showHeadline(), showPanel()]);
  running -= 1;
  at("main").ariaBusy = String(running > 0);
};
const soon = settled(refresh, 120);

const show = () => {
  const old = state;
  reread();
  showHead();
  at("main").ariaBusy = String(Boolean(state.asset));
  if (!state.asset) return;
  if (old?.accounts.join() !== state.accounts.join() || !old.chosen) showLegend();
  redraw();
  const isMoving = old && Array.isArray(state.range) && `${old.range}` !== `${state.range}`;
  (isMoving ? soon : refresh)();
};

const keysOfTabs = ({ key }) => {
  const tabs = [...at("tabs").children].filter((one) => !one.hidden);
  const by = { ArrowRight: 1, ArrowLeft: -1 }[key] ?? 0;
  const next = tabs[(tabs.indexOf(document.activeElement) + by + tabs.length) % tabs.length];
  if (by) go({ tab: next.dataset.tab });
  next.focus();
};

const setRange = () => {
  const [from, to] = ["from", "to"].map((id, n) => {
    const micros = Date.parse(`${at(id).value}Z`) * 1e3;
    return micros === Date.parse(`${toField(span()[n])}Z`) * 1e3 ? span()[n] : micros; // not rounded
  });
  let text = "";
  if (Number.isNaN(from + to)) text = "Give two moments.";
  else if (from >= to) text = "The range has to end after it starts.";
  else if (from >= about.end || to <= about.start) text = "The data have no such time.";
  at("wrong").textContent = text;
  at("wrong").hidden = !text;
  if (!text) zoom(from, to);
};

const listen = () => {
  listenToSearch();
  const chooseAsset = ({ target }) => choose(about.assets.find(({ id }) => id === target.value));
  const chooseRange = ({ target: { textContent: range } }) =>
    Object.hasOwn(RANGES, range) && go({ range });
  const chooseTab = ({ target: { dataset } }) => dataset.tab && go({ tab: dataset.tab });
  const paint = (isPaper) => {
    document.documentElement.toggleAttribute("data-paper", isPaper);
    redraw();
  };
  for (const [target, event, run] of [
    [at("asset"), "change", chooseAsset],
    [at("digits"), "change", ({ target }) => go({ digits: target.value })],
    [at("from"), "change", setRange],
    [at("to"), "change", setRange],
    [at("in"), "click", () => zoomBy(0.5)],
    [at("out"), "click", () => zoomBy(2)],
    [at("chart"), "keydown", keysOfChart],
    [at("ranges"), "click", chooseRange],
    [at("tabs"), "click", chooseTab],
    [at("tabs"), "keydown", keysOfTabs],
    [at("reload"), "click", () => location.reload()],
    [window, "popstate", goBack],
    [window, "resize", settled(redraw, 150)],
    [window, "beforeprint", () => paint(true)],
    [window, "afterprint", () => paint(false)],
  ]) {
    target.addEventListener(event, run);
  }
};

/** Say how complete the data is, and what sums leave out; a frozen page says the first itself. */
const showCompleteness = () => {
  const { completeness, left_out: leftOut } = about;
  const isGood = ["confirmed", "complete"].includes(completeness);
  const own = { class: `verdict${isGood ? "" : " bad"}`, title: meaning(completeness) };
  const verdict = isFrozen ? [] : [make("p", own, completeness)];
  for (const one of at("said").querySelectorAll(".warned")) {
    one.replaceChildren(...unbroken(one.textContent));
  }
  at("said").append(
    ...verdict,
    ...leftOut.map((said) => note(`${said[0].toUpperCase()}${said.slice(1)}.`)),
  );
};

const begin = async () => {
  at("main").ariaBusy = "true";
  const frozen = await thaw();
  const content = await get("about");
  for (const one of [content, ...content.assets]) {
    for (const name of ["name", "label"]) one[name] &&= printable(one[name]);
  }
  label(content.labels);
  enter(content, frozen, show);
  listen();
  for (const id of ["api", "picks", "tab-party", "tab-explain"]) at(id).hidden = isFrozen;
  showCompleteness();
  const check = async () => {
    const { version } = await get("version").catch(() => about);
    at("stale").hidden = version === about.version;
  };
  if (!isFrozen) setInterval(check, STALE);
  show();
};

begin().catch((error) => {
  at("failed").replaceChildren(refusal(error, () => location.reload()));
  at("failed").hidden = false;
});
