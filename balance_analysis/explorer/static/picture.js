// A chart as a file that needs no page: with its title, its legend and its colours, as SVG or PNG.
import { fitted, pen, shape } from "./chart.js";
import { make, save } from "./dom.js";

const INLINED = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linecap", "shape-rendering", "text-anchor"];
const EDGE = 16, HEAD = 48, ROW = 18;

/** Return an element with all within it, each with the style that it has on the page. */
const styled = (element) => {
  const made = element.cloneNode(true), [olds, news] = [element, made].map((one) => [one, ...one.querySelectorAll("*")]);
  olds.forEach((old, n) => {
    const style = getComputedStyle(old);
    for (const name of INLINED) news[n].setAttribute(name, style.getPropertyValue(name));
  });
  return made;
};

/** Return the chart of a box as a picture, under its title and a note, above a legend: inks and what they stand for. */
const pictureOf = (box, { title, note, legend }) => {
  const drawn = box.querySelector("svg"), chart = styled(drawn), { color, fontFamily, backgroundColor } = getComputedStyle(document.body);
  for (const part of chart.querySelectorAll(".cursor, .picked, .plot, .mark")) part.remove();
  const [width, height] = ["width", "height"].map((name) => Number(drawn.getAttribute(name)));
  chart.setAttribute("x", EDGE);
  chart.setAttribute("y", EDGE + HEAD);
  const text = (x, y, content, size = 12) => {
    pen.font = `${size}px ${fontFamily}`;
    return shape("text", { x, y, fill: color, "font-size": size }, fitted(content, EDGE + width - x));
  };
  const head = [text(EDGE, EDGE + 16, title, 17), text(EDGE, EDGE + 36, note)];
  let [x, y] = [EDGE, EDGE + HEAD + height + ROW];
  const named = [...drawn.querySelectorAll(".name")].map((one) => one.textContent); // at the ends of their lines
  const listed = legend.filter(([, label]) => !named.includes(label)).flatMap(([ink, label]) => {
    const long = Math.min(pen.measureText(label).width + 16, width), { fill, stroke } = getComputedStyle(box.querySelector(`.${ink.split(" ")[0]}`) ?? box);
    if (x + long > EDGE + width) [x, y] = [EDGE, y + ROW];
    const at = x;
    x += long + 20;
    return [shape("rect", { x: at, y: y - 9, width: 10, height: ink.includes("dashed") ? 4 : 10, fill: stroke === "none" ? fill : stroke }), text(at + 16, y, label)];
  });
  return shape("svg", { width: width + 2 * EDGE, height: y + EDGE, "font-family": fontFamily, "font-size": 12 }, shape("title", {}, title),
    shape("defs", {}, styled(document.querySelector("#hatch"))), shape("rect", { width: "100%", height: "100%", fill: backgroundColor }), ...head, chart, ...listed);
};

/** Return buttons that save the chart of a box; `tell` returns its title, note and legend. */
export const pictures = (box, tell) => ["SVG", "PNG"].map((kind) => {
  const onclick = async () => {
    const told = tell(), made = pictureOf(box, told), text = new XMLSerializer().serializeToString(made);
    const name = `${told.title.toLowerCase().replaceAll(/\W+/g, "-")}.${kind.toLowerCase()}`;
    if (kind === "SVG") return save(name, text, "image/svg+xml");
    const [width, height] = ["width", "height"].map((side) => 2 * made.getAttribute(side)), image = new Image();
    image.src = `data:image/svg+xml,${encodeURIComponent(text)}`; // the page's policy lets no other address be drawn
    await image.decode();
    const canvas = make("canvas", { width, height });
    canvas.getContext("2d").drawImage(image, 0, 0, width, height);
    canvas.toBlob((blob) => save(name, blob, "image/png"));
  };
  return make("button", { type: "button", "aria-label": `Save the chart as ${kind}`, onclick }, kind);
});
