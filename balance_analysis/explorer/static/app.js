// The page: shows the state in its address, and listens to the user.
import { about, choose, enter, go, isFrozen, span, state, tabs } from "./address.js";
import { get, thaw } from "./data.js";
import { at, hear, make, settled } from "./dom.js";
import { drawLines, keysOfChart, listenToSearch, showChart, showLegend } from "./lines.js";
import { meaning, setLabels } from "./names.js";
import { drawPanel, showHeadline, showPanel } from "./panels.js";
import { note, refusal, unbroken } from "./parts.js";
import { between, gapsIn, zoom, zoomBy } from "./range.js";
import { printable } from "./text.js";

const STALE = 5000; // milliseconds between two checks for a newer state
let running = 0;

const toField = (time) => new Date(time / 1e3).toISOString().slice(0, 19);

const showHead = () => {
  const range = span();
  const hit = gapsIn(range);
  const empty = "The archive is empty. Once it has data, this page offers to reload.";
  const ofAsset = state.asset ? `${state.asset.label} balances` : "Balances";
  at("title").textContent = about.name;
  document.title = state.asset ? `${state.asset.label} – ${about.name}` : about.name;
  at("chart-h").textContent = at("chart-h").title = ofAsset;
  const times = about.start < about.end ? `${between([about.start, about.end])} UTC` : empty;
  at("interval").replaceChildren(...unbroken(times));
  for (const part of document.querySelectorAll(".card, .choices")) part.hidden = !state.asset;
  at("asset").value = state.asset?.id;
  at("digits").value = state.digits;
  at("notice").hidden = isFrozen || !hit; // the top of a frozen page says so
  const said = `Not complete: ${hit}. Balances that may have changed there are unknown.`;
  at("notice").replaceChildren(...unbroken(said));
  at("from").value = toField(range[0]);
  at("to").value = toField(range[1]);
  at("wrong").hidden = true;
  for (const one of at("ranges").children) {
    one.setAttribute("aria-pressed", String(one.textContent === state.range));
  }
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

const show = (old) => {
  showHead();
  at("main").ariaBusy = String(Boolean(state.asset));
  if (!state.asset) return;
  if (old?.accounts.join() !== state.accounts.join() || !old.chosen) showLegend();
  redraw();
  const isMoving = old && Array.isArray(state.range) && `${old.range}` !== `${state.range}`;
  (isMoving ? soon : refresh)();
};

const keysOfTabs = ({ key }) => {
  const by = { ArrowRight: 1, ArrowLeft: -1 }[key] ?? 0;
  const all = tabs();
  const next = all.at((all.indexOf(document.activeElement) + by) % all.length);
  if (by) go({ tab: next.dataset.tab });
  next.focus();
};

const setRange = () => {
  const [from, to] = ["from", "to"].map((id, n) => {
    const micros = Date.parse(`${at(id).value}Z`) * 1e3;
    return micros === Date.parse(`${toField(span()[n])}Z`) * 1e3 ? span()[n] : micros; // not rounded
  });
  let text = "";
  if (Number.isNaN(from + to)) text = "Enter two moments.";
  else if (from >= to) text = "The range must end after it starts.";
  else if (from >= about.end || to <= about.start) text = "The range is outside the data.";
  at("wrong").textContent = text;
  at("wrong").hidden = !text;
  if (!text) zoom(from, to);
};

const listen = () => {
  listenToSearch();
  const chooseRange = ({ target, currentTarget }) =>
    target !== currentTarget && go({ range: target.textContent });
  const chooseTab = ({ target: { dataset } }) => dataset.tab && go({ tab: dataset.tab });
  const paint = (isPaper) => {
    document.documentElement.toggleAttribute("data-paper", isPaper);
    redraw();
  };
  hear(at("asset"), { change: ({ target }) => choose({ id: target.value }) });
  hear(at("digits"), { change: ({ target }) => go({ digits: target.value }) });
  hear(at("from"), { change: setRange });
  hear(at("to"), { change: setRange });
  hear(at("in"), { click: () => zoomBy(0.5) });
  hear(at("out"), { click: () => zoomBy(2) });
  hear(at("chart"), { keydown: keysOfChart });
  hear(at("ranges"), { click: chooseRange });
  hear(at("tabs"), { click: chooseTab, keydown: keysOfTabs });
  hear(at("reload"), { click: () => location.reload() });
  hear(window, {
    resize: settled(redraw, 150),
    beforeprint: () => paint(true),
    afterprint: () => paint(false),
  });
};

/** Show how complete the data is (a frozen page has that already), and what sums leave out. */
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
  setLabels(content.labels);
  const option = ({ id: value, label: text, name }) =>
    make("option", { value }, name ? `${text} – ${name}` : text);
  at("asset").append(...content.assets.map(option));
  for (const id of ["api", "picks", "tab-party", "tab-explain"]) at(id).hidden = frozen;
  listen();
  enter(content, frozen, show);
  showCompleteness();
  const check = async () => {
    const { version } = await get("version").catch(() => about);
    at("stale").hidden = version === about.version;
  };
  if (!isFrozen) setInterval(check, STALE);
};

begin().catch((error) => {
  at("failed").replaceChildren(refusal(error, () => location.reload()));
  at("failed").hidden = false;
});
