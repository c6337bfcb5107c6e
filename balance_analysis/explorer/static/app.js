// The page: it shows what the address tells, and hears what somebody does.
import { MOST, RANGES, about, between, choose, enter, go, goBack, isFrozen, reread, span, state, zoomBy } from "./address.js";
import { get, thaw, told } from "./data.js";
import { at, fail, make, settled } from "./dom.js";
import { showHeadline } from "./headline.js";
import { drawLines, isDifference, keysOfChart, pictured, showChart, showLegend } from "./lines.js";
import { listenToRange, showRange } from "./moments.js";
import { pictures } from "./picture.js";
import { drawPanel, showPanel } from "./panels.js";
import { close, keysOfSearch, offer } from "./search.js";
import { label, meaning } from "./text.js";

const CHOICES = ["units", "digits", "theme", "as"];
let running = 0;

const INSTEAD = { asset: () => `the asset ${state.asset?.label}`, range: () => (state.range === "ALL" ? "all of the time" : between(span())), units: () => "whole units", digits: () => "those that matter", theme: () => "the system's theme", tab: () => "holders", by: () => "accounts",
  at: () => "the end", page: () => "the newest rows", totals: () => "lines", as: () => "balances", account: () => (state.accounts.length < MOST ? `accounts of ${state.asset?.label}` : `${MOST} accounts`) };
/** Tell of a part of the address that can't be used, and of what is shown in its place. */
const toldOf = ([name, text]) => {
  const part = `${name}=${text}`;
  return `“${part.length > 50 ? `${part.slice(0, 49)}…` : part}”${Object.hasOwn(INSTEAD, name) ? ` (shown: ${INSTEAD[name]()})` : ""}`;
};

const showHead = () => {
  const [start, end] = span(), hit = about.gaps.filter(([from, to]) => from < end && to > start);
  document.documentElement.dataset.theme = state.theme;
  at("title").textContent = about.name;
  document.title = state.asset ? `${state.asset.label} – ${about.name}` : about.name;
  at("chart-h").textContent = state.asset ? `${state.asset.label} balances` : "Balances";
  at("interval").textContent = about.start < about.end ? `${between([about.start, about.end])} UTC` : "There is nothing in it yet. Once something is, this page offers to reload.";
  for (const part of document.querySelectorAll(".card, .choices")) part.hidden = !state.asset;
  at("asset").replaceChildren(...about.assets.map(({ id, label, name }) => make("option", { value: id, selected: id === state.asset?.id }, name ? `${label} – ${name}` : label)));
  for (const name of CHOICES) at(name).value = state[name];
  showRange([start, end]);
  at("log").checked = state.log;
  at("log").disabled = isDifference();
  at("left").hidden = !state.left.length;
  at("left").textContent = `Not all of this address can be used: ${state.left.map(toldOf).join("; ")}.`;
  for (const button of at("ranges").children) button.setAttribute("aria-pressed", button.textContent === state.range);
  at("notice").hidden = isFrozen || !hit.length; // a frozen page says it above
  at("notice").textContent = `Not known to be complete: ${hit.slice(0, 3).map(between).join("; ")}${hit.length > 3 ? `; ${hit.length - 3} more` : ""}. Balances that may have changed there are unknown.`;
};

const redraw = () => {
  drawLines();
  drawPanel();
};

const refresh = async () => {
  running += 1;
  await Promise.all([showChart(), showHeadline(), showPanel()].map((part) => part.catch(fail)));
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
  if (old?.accounts.join() !== state.accounts.join()) showLegend();
  redraw();
  (old && Array.isArray(state.range) && old.range !== state.range ? soon : refresh)();
};

const keysOfTabs = ({ key }) => {
  const tabs = [...at("tabs").children].filter((one) => !one.hidden), by = { ArrowRight: 1, ArrowLeft: -1 }[key] ?? 0;
  const next = tabs[(tabs.indexOf(document.activeElement) + by + tabs.length) % tabs.length];
  if (by) go({ tab: next.dataset.tab });
  next.focus();
};

const listen = () => {
  listenToRange();
  for (const name of CHOICES) at(name).addEventListener("change", ({ target }) => go({ [name]: target.value }));
  const paint = (theme) => { document.documentElement.dataset.theme = theme; redraw(); };
  for (const [target, event, run] of [[at("asset"), "change", ({ target: { value: id } }) => choose(about.assets.find((one) => one.id === id))],
    [at("log"), "change", ({ target }) => go({ log: target.checked && 1 })],
    [at("in"), "click", () => zoomBy(0.5)], [at("out"), "click", () => zoomBy(2)],
    [at("find"), "input", () => { close(); offer(); }], [at("find"), "focus", offer], [at("find"), "blur", close], [at("find"), "keydown", keysOfSearch],
    [at("chart"), "keydown", keysOfChart], [at("tabs"), "keydown", keysOfTabs],
    [at("ranges"), "click", ({ target: { textContent: range } }) => Object.hasOwn(RANGES, range) && go({ range })],
    [at("tabs"), "click", ({ target: { dataset: { tab } } }) => tab && go({ tab })],
    [at("reload"), "click", () => location.reload()], [window, "popstate", goBack], [window, "resize", settled(redraw, 150)],
    [window, "beforeprint", () => paint("paper")], [window, "afterprint", () => paint(state.theme)]]) target.addEventListener(event, run);
  addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target.closest("input, select")) return;
    event.preventDefault();
    at("find").focus();
  });
};

const begin = async () => {
  at("main").ariaBusy = "true";
  const frozen = await thaw();
  enter(await get("about"), frozen, show);
  label(about.labels);
  listen();
  at("saved").append(...pictures(at("chart"), pictured));
  at("api").hidden = at("picks").hidden = at("tab-explain").hidden = isFrozen;
  at("did").open = innerWidth > 640; // what stands below it is near on a small screen, too
  const isGood = ["confirmed", "complete"].includes(about.completeness);
  at("said").append(isFrozen ? make("p", { class: "note" }, told().said) : make("p", { class: `verdict${isGood ? "" : " bad"}`, title: meaning(about.completeness) }, about.completeness));
  at("said").append(...about.left_out.map((said) => make("p", { class: "note" }, said)));
  if (!isFrozen) setInterval(async () => { at("stale").hidden = (await get("version").catch(() => about)).version === about.version; }, 5000);
  show();
};

begin().catch(fail);
