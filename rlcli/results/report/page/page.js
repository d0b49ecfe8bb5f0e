"use strict";
// The page of reports and of the board: draws a document, which is JSON, as sections of
// charts, tables and films. What runs contain becomes text nodes, never HTML.
const page = (() => {
  const root = document.documentElement;
  const content = JSON.parse(document.getElementById("document").textContent);

  // ------------------------------------------------------------------ elements
  function h(name, attributes, ...children) {
    const element = name === "svg" || name === "line" || name === "rect"
      ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes ?? {})) {
      if (value === null || value === undefined || value === false) continue;
      if (key === "tint") element.style.setProperty("--tint", value);
      else if (typeof value === "function") element.addEventListener(key.slice(2), value);
      else element.setAttribute(key, value === true ? "" : value);
    }
    element.append(...children.flat(Infinity).filter((each) => each || each === 0));
    return element;
  }

  const color = (index) => content.colors[index % content.colors.length];
  const swatch = (index) => h("span", { class: "swatch", tint: color(index), "aria-hidden": "true" });
  const capitalize = (text) => (text.includes(".") ? text : text.charAt(0).toUpperCase() + text.slice(1));
  const count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
  const isMissing = (value) => value === null || value === undefined;
  const format = (value) => isMissing(value) ? "–"
    : Number(value).toLocaleString("en", Number.isInteger(value) ? {} : { maximumSignificantDigits: 5 });
  const span = (low, high) => `${format(low)} to ${format(high)}`;

  // Text in which `names` are code; a backtick without its pair is text.
  function prose(text) {
    const parts = text.split("`");
    return parts.length % 2 ? parts.map((part, index) => (index % 2 ? h("code", {}, part) : part)) : [text];
  }

  // Details that stay open when their section is drawn again.
  const opened = new Map();
  function fold(key, attributes, summary, ...children) {
    const open = opened.get(key) ?? attributes.open;
    return h("details", { ...attributes, open, ontoggle: (event) => opened.set(key, event.target.open) },
      h("summary", {}, summary), children);
  }

  const TEXT_COLUMNS = ["second", "run"];
  function table({ header, rows, best }, title) {
    const isBest = (row, column) => (best ?? []).some((each) => each[0] === row && each[1] === column);
    const kind = (row, column) => TEXT_COLUMNS.includes(header[column]) ? "text" : isBest(row, column) ? "best" : null;
    return h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": title }, h("table", {},
      h("thead", {}, h("tr", {}, header.map((name, column) => h("th", { scope: "col", class: kind(-1, column) }, name)))),
      h("tbody", {}, rows.map((row, number) => h("tr", {}, row.map((cell, column) =>
        column ? h("td", { class: kind(number, column) }, cell) : h("th", { scope: "row" }, cell)))))));
  }

  const groups = (cards) => cards.length < 2 ? null
    : h("ul", { class: "groups", "aria-label": "Groups" }, cards.map((card) => h("li", {}, swatch(card.color), card.label)));

  function legend(entries) {
    const mark = ({ color: stroke, dash }) => h("svg", { width: 26, height: 10, class: "sample" }, dash.length
      ? h("line", { x1: 0, y1: 5, x2: 26, y2: 5, stroke, "stroke-width": 2.5, "stroke-dasharray": dash.join(" ") })
      : h("rect", { x: 8, width: 10, height: 10, rx: 2, fill: stroke }));
    return entries.length ? h("ul", { class: "groups", "aria-hidden": "true" },
      entries.map((each) => h("li", {}, mark(each), each.label))) : null;
  }

  // -------------------------------------------------------------------- charts
  // How curves are shown: axes that are logarithmic, the weight of the moving average,
  // and the part of x.
  const view = { log: "", smooth: 0, range: null };
  let whole = null; // the range of all data
  const figures = new Map(); // key -> figure; one that is drawn again keeps its element

  // The rows of blocks, whose columns are arrays; other values are those of all rows.
  function expand(blocks) {
    return blocks.flatMap((block) => {
      const columns = Object.keys(block).filter((key) => Array.isArray(block[key]));
      const length = columns.length ? block[columns[0]].length : 0;
      return Array.from({ length }, (_, index) => {
        const row = { ...block };
        for (const key of columns) row[key] = block[key][index];
        return row;
      });
    });
  }

  // The data of a chart as a table, for screen readers.
  const ROWS = 20; // of a curve
  const LISTED = 10; // values in a cell
  function cell(row, field) {
    const value = row[field];
    if (field === "interval") return isMissing(row.low) ? "n/a: 1 seed" : span(row.low, row.high);
    if (field === "x" && "x2" in row) return span(row.x, row.x2);
    if (/^p\d+$/.test(field)) return `${format(100 * value)} %`;
    if (Array.isArray(value)) return value.slice(0, LISTED).map(format).join(", ") + (value.length > LISTED ? `, … (${value.length})` : "");
    return typeof value === "string" ? value : format(value);
  }
  function tabulate({ blocks, columns }) {
    const series = blocks.filter((each) => each.kind !== "mark").map((each) => expand([each]).filter((row) => row.kind !== "bar" || row.y));
    const isLong = (all) => all.length > ROWS && !all[0].kind && ("y" in all[0] || "p0" in all[0]);
    const rows = series.flatMap((all) => isLong(all)
      ? Array.from({ length: ROWS }, (_, index) => all[Math.round(index * (all.length - 1) / (ROWS - 1))]) : all);
    const total = series.flat().length;
    const fields = Object.keys(columns).filter((field) => rows.some((row) => (field === "interval" ? !isMissing(row.low) : cell(row, field))));
    return { header: fields.map((field) => columns[field]), rows: rows.map((row) => fields.map((field) => cell(row, field))),
      note: rows.length < total ? `${rows.length} of ${format(total)} points` : "" };
  }

  // The exponential moving average, without the bias of its first points.
  function smooth(values, weight) {
    let sum = 0, total = 0;
    return values.map((value) => {
      if (value === null) return null;
      [sum, total] = [weight * sum + (1 - weight) * value, weight * total + (1 - weight)];
      return sum / total;
    });
  }

  function setScale(spec, axis, change) {
    if (spec === null || typeof spec !== "object") return spec;
    if (Array.isArray(spec)) return spec.map((each) => setScale(each, axis, change));
    const found = Object.fromEntries(Object.entries(spec).map(([key, each]) => [key, setScale(each, axis, change)]));
    if (found[axis]?.scale?.domain) found[axis] = { ...found[axis], scale: { ...found[axis].scale, ...change } };
    return found;
  }

  // A chart with axes that show as much as those of all charts with its title.
  function shareAxes(chart, charts) {
    const layers = charts.filter((each) => each.title === chart.title).flatMap((each) => each.spec.layer);
    return ["x", "y"].reduce((found, axis) => {
      const ends = layers.flatMap((layer) => layer.encoding[axis]?.scale?.domain ?? []);
      return { ...found, spec: setScale(found.spec, axis, { domain: [Math.min(...ends), Math.max(...ends)] }) };
    }, chart);
  }

  function extent(values, isLog) {
    let low = Infinity, high = -Infinity;
    for (const value of values) {
      if (isMissing(value)) continue;
      [low, high] = [Math.min(low, value), Math.max(high, value)];
    }
    if (isLog) return low < high ? [low, high] : [low / 2, high * 2];
    const margin = (high - low) / 30 || Math.abs(high) / 10 || 1;
    return [low - margin, high + margin];
  }

  // The specification and the rows of a chart, as `view` shows them, with remarks.
  function adapt({ spec, blocks }) {
    const remarks = [];
    if (view.smooth) {
      remarks.push(`Smoothed: exponential moving average with weight ${view.smooth}, interval as well.`);
      blocks = blocks.map((block) => Object.fromEntries(Object.entries(block).map(([key, values]) =>
        [key, ["y", "low", "high"].includes(key) && Array.isArray(values) ? smooth(values, view.smooth) : values])));
    }
    let rows = expand(blocks);
    if (view.range) {
      const [begin, end] = view.range;
      const inside = rows.filter((row) => row.x >= begin && row.x <= end);
      if (inside.length) {
        rows = inside;
        spec = setScale(spec, "x", { domain: view.range });
      }
    }
    for (const axis of view.log) {
      const positive = rows.filter((row) => row[axis] > 0);
      if (!positive.length) {
        remarks.push(`No ${axis} is positive: its axis stays linear.`);
        continue;
      }
      if (positive.length < rows.length) remarks.push(`Points whose ${axis} is not positive are left out.`);
      const domain = axis === "x" && view.range?.[0] > 0 ? view.range : extent(positive.map((row) => row[axis]), true);
      rows = positive.map((row) => (axis === "y" && row.low <= 0 && typeof row.low === "number" ? { ...row, low: domain[0] } : row));
      spec = setScale(spec, axis, { type: "log", domain, zero: undefined });
    }
    if (view.smooth || view.range || view.log.includes("y")) {
      const isLog = view.log.includes("y") && !remarks.some((each) => each.startsWith("No y"));
      spec = setScale(spec, "y", { domain: extent(rows.flatMap((row) => [row.y, row.low, row.high]), isLog) });
    }
    return { spec, rows, remarks };
  }

  const config = {
    background: null,
    axis: { labelFontSize: 11, titleFontSize: 12, titleFontWeight: 500, domainWidth: 1, titlePadding: 8 },
    legend: { labelFontSize: 12, labelLimit: 300 },
    aria: false,
  };

  class Figure {
    constructor(key, isCurve, hasNote) {
      Object.assign(this, { isCurve, hasNote, places: [], index: -1 });
      this.caption = h("figcaption");
      this.legend = h("div");
      this.cursor = h("div", { class: "cursor", hidden: true });
      this.brush = h("div", { class: "brush", hidden: true });
      this.drawn = h("div");
      this.plot = h("div", { class: "plot", tabindex: 0, role: "img" }, this.drawn, this.cursor, this.brush);
      this.readout = h("p", { class: "readout", "aria-live": "polite" });
      this.data = h("div");
      this.summary = h("span", { class: "unseen" });
      this.element = h("figure", { class: "chart" }, this.caption, this.legend, this.plot, this.readout,
        fold(`${key}/data`, { class: "data" }, ["Data", this.summary], this.data));
      this.plot.figure = this;
      this.plot.addEventListener("keydown", (event) => this.press(event));
      this.plot.addEventListener("blur", () => this.moveCursor(-1));
      if (isCurve) this.plot.addEventListener("pointerdown", (event) => this.drag(event));
    }

    show(chart) {
      const text = JSON.stringify(chart);
      if (text === this.text) return this;
      Object.assign(this, { text, chart, drawing: null });
      this.plot.setAttribute("aria-label", `${chart.description}. The data is in the table below.`);
      if (!this.vega) this.plot.style.minHeight = `${chart.spec.height + 40}px`;
      this.legend.replaceChildren(...[legend(chart.legend)].filter(Boolean));
      this.summary.textContent = ` of ${chart.title}`;
      const data = tabulate(chart);
      this.data.replaceChildren(...(data.note ? [h("p", { class: "muted" }, data.note)] : []), table(data, `Data of ${chart.title}`));
      this.readable = chart.blocks.filter((block) => Array.isArray(block.x) && (block.y || block.p0));
      this.places = [...new Set(this.readable.flatMap((block) => block.x))].sort((a, b) => a - b);
      this.write([]);
      this.schedule();
      return this;
    }

    write(remarks) {
      const { title, note, meaning } = this.chart;
      const name = h("span", { class: "chart-title", tabindex: meaning ? 0 : null }, title,
        meaning ? h("span", { class: "meaning", role: "tooltip" }, meaning) : null);
      const text = [this.hasNote ? note : "", ...remarks].filter(Boolean).join(" ");
      this.caption.replaceChildren(name, ...(text ? [" ", h("span", { class: "muted" }, text)] : []));
    }

    schedule() {
      root.removeAttribute("data-drawn");
      this.drawing = null;
      near.unobserve(this.plot);
      near.observe(this.plot);
    }

    draw() {
      this.drawing ??= this.embed().catch(console.error);
      return this.drawing;
    }

    async embed() {
      const { spec, rows, remarks } = this.isCurve ? adapt(this.chart) : { ...this.chart, rows: expand(this.chart.blocks), remarks: [] };
      const place = h("div"), width = this.plot.clientWidth;
      const { view: vega } = await vegaEmbed(
        place,
        { ...spec, width, data: { name: "points", values: rows } },
        { mode: "vega-lite", renderer: "svg", actions: false, ast: true, defaultStyle: false, config,
          tooltip: { theme: "none", disableDefaultStyle: true } },
      );
      this.vega?.finalize();
      Object.assign(this, { vega, width });
      this.drawn.replaceWith(place);
      this.drawn = place;
      place.querySelector("svg").setAttribute("aria-hidden", "true"); // the plot has a label
      this.plot.style.minHeight = "";
      this.write(remarks);
      sizes.observe(this.plot);
    }

    resize() {
      const width = this.plot.clientWidth;
      if (!this.vega || !width || width === this.width) return;
      this.width = width;
      this.vega.width(width).resize().runAsync();
    }

    place(x) {
      return this.vega.origin()[0] + this.vega.scale("x")(x);
    }

    setCursor(x) {
      this.cursor.hidden = x === null || !this.vega;
      if (this.cursor.hidden) return;
      const [left, top] = [this.place(x), this.vega.origin()[1]];
      this.cursor.hidden = !(left >= 0 && left <= this.plot.clientWidth);
      Object.assign(this.cursor.style, { left: `${left}px`, top: `${top}px`, height: `${this.vega.height()}px` });
    }

    moveCursor(index) {
      this.index = index;
      this.setCursor(index < 0 ? null : this.places[index]);
      this.readout.textContent = index < 0 ? "" : describe(this.readable, this.places[index]);
    }

    press(event) {
      const { index, places } = this, stride = event.shiftKey ? 10 : 1;
      const target = {
        ArrowRight: index + stride, ArrowLeft: Math.max(0, index - stride), Home: 0, End: places.length - 1, Escape: -1,
      }[event.key];
      if (target !== undefined && places.length) {
        event.preventDefault();
        this.moveCursor(Math.min(target, places.length - 1));
      }
      const factor = { "+": 1 / 2, "=": 1 / 2, "-": 2 }[event.key];
      if (!this.isCurve || event.ctrlKey || event.metaKey || !places.length) return;
      if (event.key === "0") setView({ range: null });
      if (factor) this.zoom(factor);
    }

    zoom(factor) {
      this.remember();
      const [first, last] = whole ?? [this.places[0], this.places.at(-1)], [begin, end] = view.range ?? [first, last];
      const center = this.index < 0 ? (begin + end) / 2 : this.places[this.index], half = (end - begin) * factor / 2;
      const range = [Math.max(first, center - half), Math.min(last, center + half)];
      setView({ range: range[0] <= first && range[1] >= last ? null : range });
    }

    // The range of all data: a board sends only those in the range that is shown.
    remember() {
      if (!view.range) whole = [this.places[0], this.places.at(-1)];
    }

    drag(event) {
      if (!this.vega || event.button) return;
      this.remember();
      const box = this.plot.getBoundingClientRect(), [left, top] = this.vega.origin();
      const limit = (x) => Math.min(Math.max(x - box.left, left), left + this.vega.width());
      const start = limit(event.clientX);
      if (Math.abs(start - (event.clientX - box.left)) > 1) return; // beside the axes
      let end = start;
      const move = (next) => {
        end = limit(next.clientX);
        this.brush.hidden = Math.abs(end - start) < 5;
        Object.assign(this.brush.style, {
          left: `${Math.min(start, end)}px`, width: `${Math.abs(end - start)}px`, top: `${top}px`, height: `${this.vega.height()}px`,
        });
      };
      const stop = () => {
        window.removeEventListener("pointermove", move);
        if (!this.brush.hidden) {
          const scale = this.vega.scale("x");
          setView({ range: [start, end].sort((a, b) => a - b).map((x) => scale.invert(x - left)) });
        }
        this.brush.hidden = true;
      };
      window.addEventListener("pointermove", move);
      window.addEventListener("pointerup", stop, { once: true });
    }
  }

  // The values of a chart at x, which the arrow keys read out.
  function describe(blocks, x) {
    const lines = blocks.flatMap((block) => {
      const index = block.x.indexOf(x);
      if (index < 0) return [];
      if (block.kind === "bar") return [`${span(x, block.x2[index])}: ${format(block.y[index])}`];
      if (block.y === undefined) {
        const shares = Object.keys(block).filter((key) => /^p\d+$/.test(key));
        return shares.map((key) => `action ${key.slice(1)}: ${format(100 * block[key][index])} %`);
      }
      const band = block.low ? ` (${span(block.low[index], block.high[index])})` : "";
      return [`${block.label}: ${format(block.y[index])}${band}`];
    });
    return `${format(x)} – ${lines.join("; ")}`;
  }

  // Charts are drawn as they come near the window, and the others when there is time.
  const near = new IntersectionObserver(
    (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => {
      near.unobserve(entry.target);
      entry.target.figure.draw();
    }),
    { rootMargin: "400px" },
  );
  const sizes = new ResizeObserver((entries) => entries.forEach((entry) => entry.target.figure.resize()));
  const later = window.requestIdleCallback
    ? (run) => requestIdleCallback(run, { timeout: 500 }) : (run) => setTimeout(run, 50);
  let isDrawing = false;
  async function drawRest() {
    if (isDrawing) return;
    isDrawing = true;
    let next;
    while ((next = [...figures.values()].find((each) => !each.drawing))) {
      await next.draw();
      await new Promise(later);
    }
    await Promise.all([...figures.values()].map((each) => each.drawing));
    isDrawing = false;
    root.setAttribute("data-drawn", "");
  }
  window.addEventListener("beforeprint", () => {
    document.querySelectorAll("details:not(.data)").forEach((each) => { each.open = true; });
    figures.forEach((each) => each.draw());
  });

  let used = new Set();
  function figure(chart, key, { isCurve = false, hasNote = true } = {}) {
    if (!chart) return null;
    while (used.has(key)) key += "'";
    used.add(key);
    if (!figures.has(key)) figures.set(key, new Figure(key, isCurve, hasNote));
    return figures.get(key).show(chart).element;
  }

  function smallFigures(charts, key) {
    const notes = [...new Set(charts.map((chart) => chart.note).filter(Boolean))];
    return [notes.length ? h("p", { class: "fine" }, notes.join(" ")) : null,
      h("div", { class: "grid" }, charts.map((chart) => figure(chart, `${key}/${chart.title}`, { isCurve: true, hasNote: false })))];
  }

  // ----------------------------------------------------------- view of the curves
  const listeners = [];
  function setView(change) {
    Object.assign(view, change);
    figures.forEach((each) => { if (each.isCurve) each.schedule(); });
    listeners.forEach((listen) => listen());
    later(drawRest);
  }

  // The fragment of the link says what is shown: `#log=y&smooth=0.9&range=0,500`.
  const fields = new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
  function readView() {
    const numbers = (fields.get("range") ?? "").split(",").map(Number);
    view.log = [..."xy"].filter((axis) => (fields.get("log") ?? "").includes(axis)).join("");
    view.smooth = Math.min(0.99, Math.max(0, Number(fields.get("smooth")) || 0));
    view.range = numbers.length === 2 && numbers.every(Number.isFinite) && numbers[0] < numbers[1] ? numbers : null;
  }
  function writeFields(change) {
    for (const [key, value] of Object.entries(change)) {
      if (value) fields.set(key, value);
      else fields.delete(key);
    }
    const text = fields.toString();
    if (text || location.hash.includes("=")) history.replaceState(null, "", text ? `#${text}` : "#");
  }
  readView();
  listeners.push(() => writeFields({ log: view.log, smooth: view.smooth, range: view.range?.map((x) => Number(x.toPrecision(6))).join(",") }));

  function makeControls(more) {
    const box = (axis) => h("input", { type: "checkbox", onchange: (event) =>
      setView({ log: [..."xy"].filter((each) => (each === axis ? event.target.checked : view.log.includes(each))).join("") }) });
    const [logX, logY] = [box("x"), box("y")], output = h("output");
    const slider = h("input", { type: "range", min: 0, max: 0.99, step: 0.01, "aria-label": "Smoothing",
      oninput: () => setView({ smooth: Number(slider.value) }) });
    const reset = h("button", { type: "button", onclick: () => setView({ range: null }) }, "Whole range");
    const show = () => {
      [logX.checked, logY.checked] = [view.log.includes("x"), view.log.includes("y")];
      slider.value = view.smooth;
      output.textContent = view.smooth ? String(view.smooth) : "off";
      reset.hidden = !view.range;
    };
    listeners.push(show);
    show();
    return h("div", { class: "bar", role: "group", "aria-label": "View of the curves" }, more,
      h("label", {}, logX, " log x"), h("label", {}, logY, " log y"), h("label", {}, "smoothing ", slider, output), reset);
  }
  const controls = makeControls(h("span", { class: "more" }));

  // ---------------------------------------------------------------------- films
  // A film starts only when its button is pressed.
  const FRAMES_PER_SECOND = 20;
  function film({ sheet, captions }, title, followers) {
    const { columns, width, height, steps } = sheet;
    const canvas = h("canvas", { width, height, role: "img", "aria-label": `${title}: the environment at the step named below` });
    const frames = h("img", { class: "frames", src: sheet.image, alt: "The frames of the episode, in rows" });
    const button = h("button", { type: "button", class: "play", "aria-label": "Play" }, "▶");
    const slider = h("input", { type: "range", min: 0, max: steps.length - 1, value: 0, "aria-label": "Frame of the episode" });
    const output = h("output", {}, captions[0]);
    let timer = null;
    function show(frame) {
      const left = (frame % columns) * width, top = Math.floor(frame / columns) * height;
      canvas.getContext("2d").drawImage(frames, left, top, width, height, 0, 0, width, height);
      output.textContent = captions[frame];
      slider.value = frame;
      slider.setAttribute("aria-valuetext", captions[frame]);
    }
    function follow(frame) { followers().forEach((each) => each.setCursor(steps[frame])); }
    function stop() {
      clearInterval(timer);
      timer = null;
      button.textContent = "▶";
      button.setAttribute("aria-label", "Play");
    }
    button.addEventListener("click", () => {
      if (timer) return stop();
      if (Number(slider.value) >= steps.length - 1) slider.value = 0;
      button.textContent = "❚❚";
      button.setAttribute("aria-label", "Pause");
      timer = setInterval(() => {
        const frame = Number(slider.value) + 1;
        if (frame >= steps.length) return stop();
        show(frame);
        follow(frame);
      }, 1000 / FRAMES_PER_SECOND);
    });
    slider.addEventListener("input", () => { stop(); show(Number(slider.value)); follow(Number(slider.value)); });
    frames.decode().then(() => show(0));
    return h("div", { class: `film${sheet.is_drawing ? " drawing" : ""}` }, canvas, frames,
      h("div", { class: "controls" }, button, slider, output),
      sheet.every > 1 ? h("p", { class: "fine" }, `A frame of every ${sheet.every} steps.`) : null);
  }

  // ------------------------------------------------------------------- sections
  const CENTERS = { mean: "mean", iqm: "interquartile mean" };
  const byEnvironment = (learning, describeOne) => learning.map((each) => [
    h("h3", { class: learning.length === 1 ? "unseen" : null }, each.environment), describeOne(each)]);

  function results({ learning, center, notes, claims = [] }) {
    const card = (each) => h("article", { class: "card", tint: color(each.color) },
      h("h4", {}, swatch(each.color), each.label), h("p", { class: "result" }, each.value), h("p", { class: "interval" }, each.interval),
      h("dl", {}, each.facts.map(([name, text]) => h("div", {}, h("dt", {}, name), h("dd", {}, text)))));
    const sentences = claims.map((claim) => h("li", {}, prose(claim)));
    return [sentences.length ? [h("h3", {}, "Claims"), h("ul", { class: "claims" }, sentences)] : null,
    byEnvironment(learning, (each) => [
      h("p", { class: "muted" }, `${capitalize(each.metric)}: ${CENTERS[center]} over seeds of the last value.`),
      h("div", { class: "cards" }, each.cards.map(card)),
      each.results.map((chart) => figure(chart, `results/${each.environment}/${chart.title}`)),
      each.tables.filter((_, index) => each.cards.length > 1 || index).map((found) =>
        [h("h4", { class: "table-title" }, found.title), table(found, found.title)]),
      figure(each.spread, `spread/${each.environment}`),
    ]),
    h("p", { class: "fine" }, "Intervals are 95 % bootstrap intervals over seeds."),
    notesOf(notes)];
  }
  const notesOf = (notes) => notes.length ? h("aside", { "aria-label": "Notes" }, h("h3", {}, "Notes"),
    h("ul", {}, notes.map((note) => h("li", {}, prose(note))))) : null;

  const single = (found) => found.learning.filter((each) => each.environment !== "all environments");
  const learning = (found) => [controls, byEnvironment(single(found), (each) => [groups(each.cards),
    each.curves.map((chart) => figure(chart, `learning/${each.environment}/${chart.title}`, { isCurve: true }))])];

  const diagnostics = (found) => [h("p", { class: "muted" }, "The metrics of the updates, averaged over seeds."),
    byEnvironment(single(found), (each) => [groups(each.cards),
      smallFigures(each.diagnostics, `diagnostics/${each.environment}`),
      each.schedules.length ? [h("h4", {}, "Options with schedules"), smallFigures(each.schedules, `schedules/${each.environment}`)] : null,
      each.diagnostics.length || each.schedules.length ? null : h("p", {}, "No metrics of updates have been logged.")])];

  const named = (id, each, ...children) => h("article", { class: "group", tint: color(each.color), "aria-labelledby": id },
    h("h3", { id }, swatch(each.color), each.label), children);

  function episode(data, key, all) {
    const charts = data.charts.map((chart) => figure(shareAxes(chart, all), `${key}/${chart.title}`));
    const followers = () => charts.map((each) => each.querySelector(".plot").figure);
    return h("article", { class: "episode" }, h("h4", {}, data.title), h("p", { class: "muted" }, data.caption),
      data.film ? film(data.film, data.title, followers) : null, charts,
      data.notes.map((note) => h("p", { class: "fine" }, prose(note), ".")));
  }
  const episodes = (found) => [h("p", { class: "muted" }, "The trained policies, acting greedily."),
    found.episodes.map((each, index) => named(`episodes-${index}`, each, h("p", {}, each.summary),
      figure(each.returns, `episodes/${index}`),
      fold(`episodes/${index}/seeds`, {}, "Each seed", table(each.table, each.table.title)),
      h("div", { class: "episodes" }, each.episodes.map((one) =>
        episode(one, `episodes/${index}/${one.title}`, each.episodes.flatMap(({ charts }) => charts))))))];

  const updates = (found) => [
    h("p", { class: "muted" }, "What the updater of the newest run of each group would get and do next."),
    found.updates.map((each, index) => named(`updates-${index}`, each,
      h("p", {}, prose(each.headline), " (", h("code", {}, each.run), ")"),
      each.signs.length ? h("ul", {}, each.signs.map((sign) => h("li", {}, prose(sign)))) : null,
      each.tables.map((one) => fold(`updates/${index}/${one.title}`, {}, one.title, table(one, one.title)))))];

  function differences(found, columns, name, title) {
    const rows = found.map((each) => [each.key, ...each.values].map((text) => h("code", {}, text)));
    return rows.length ? table({ header: [name, ...columns.map(([index, label]) => [swatch(index), label])], rows }, title)
      : h("p", {}, "No differences.");
  }

  const ORIGINS = { recipe: " (set in the recipe)", changed: " (changed for this run)" };
  function recipe(found, isOnly) {
    const option = (each) => h("div", { class: each.origin }, h("dt", {}, each.key), h("dd", {}, each.value,
      each.origin === "changed" ? h("span", { class: "was" }, ` was ${each.before}`) : null,
      h("span", { class: "unseen" }, ORIGINS[each.origin] ?? "")));
    return fold(`recipes/${found.label}`, { class: "recipe", open: isOnly }, h("h3", {}, swatch(found.color), found.label),
      h("p", { class: "legend" }, h("span", { class: "recipe-mark" }, "set in the recipe"), " ",
        h("span", { class: "changed-mark" }, "changed for this run"), " ", h("span", { class: "default-mark" }, "default")),
      h("div", { class: "sections" }, Object.entries(found.sections).map(([name, options]) =>
        h("div", {}, h("h4", {}, name), h("dl", { class: "options" }, options.map(option))))));
  }
  const recipes = (found) => [
    found.labels.length < 2 ? null : [h("h3", {}, "What differs between the groups"),
      differences(found.recipe_differences, found.labels.map((label, index) => [index, label]), "option", "Differences between recipes"),
      found.recipe_differences.length ? h("p", { class: "fine" }, "Options that only some groups have are left out where the names of their parts differ.") : null],
    found.recipes.map((each) => recipe(each, found.recipes.length === 1))];

  function run(found, isOnly) {
    const fact = (name, text) => h("div", {}, h("dt", {}, name), h("dd", {}, text));
    return fold(`provenance/${found.name}`, { class: "run", open: isOnly },
      h("h3", {}, swatch(found.color), found.name, " ", h("span", { class: "status" }, found.status)),
      h("dl", { class: "facts" }, found.facts.map(([name, text]) => fact(name, text)),
        found.code.map(([file, digest]) => fact(["Code ", h("code", {}, file)], h("code", {}, `sha256 ${digest}`)))),
      found.diff ? fold(`provenance/${found.name}/diff`, {}, "Uncommitted changes", h("pre", { tabindex: 0 }, found.diff)) : null);
  }
  const provenance = (found) => [
    found.runs.length < 2 ? null : [h("h3", {}, "What differs between the machines and versions of the runs"),
      differences(found.machine_differences, found.runs.map((each) => [each.color, each.name]), "fact", "Differences between machines")],
    found.runs.map((each) => run(each, found.runs.length === 1))];

  // Each with the fields of the document that it shows; those without content are optional.
  const SECTIONS = [
    ["results", "Results", results, ["learning", "center", "notes", "claims"]],
    ["learning", "Learning curves", learning, ["learning"]],
    ["episodes", "Episodes", episodes, ["episodes"], (found) => found.episodes.length],
    ["diagnostics", "Diagnostics", diagnostics, ["learning"]],
    ["updates", "The next update", updates, ["updates"], (found) => found.updates.length],
    ["recipes", "Recipes", recipes, ["labels", "recipes", "recipe_differences"]],
    ["provenance", "Provenance", provenance, ["runs", "machine_differences"]],
  ];

  // The sections of a document, for `show`.
  const sectionsOf = (found) => SECTIONS.filter(([, , , , has]) => !has || has(found))
    .map(([id, title, draw, names]) => ({ id, title, data: names.map((name) => found[name]), draw: () => draw(found) }));

  const nav = h("ul");
  const shown = new Map(); // id -> the section's element and data
  const main = document.getElementById("main");
  // Draws sections, those with the same data not again.
  function show(sections) {
    const focused = document.activeElement;
    used = new Set();
    for (const { id, title, data, draw } of sections) {
      const known = shown.get(id) ?? { element: h("section", { id, "aria-labelledby": `${id}-title` }) };
      shown.set(id, known);
      const text = JSON.stringify(data);
      if (known.text !== text) {
        const before = used;
        used = new Set();
        known.element.replaceChildren(h("h2", { id: `${id}-title` }, title),
          ...[draw()].flat(Infinity).filter(Boolean));
        [known.text, known.used, used] = [text, used, before];
      }
      known.used?.forEach((key) => used.add(key));
    }
    for (const [key, each] of figures) {
      if (used.has(key)) continue;
      each.vega?.finalize();
      figures.delete(key);
    }
    const elements = sections.map(({ id }) => shown.get(id).element);
    if (elements.some((each, index) => main.children[index] !== each) || main.children.length !== elements.length) {
      main.replaceChildren(...elements);
      nav.replaceChildren(...sections.map(({ id, title }) => h("li", {}, h("a", { href: `#${id}`, onclick: jump }, title))));
    }
    if (focused?.isConnected && document.activeElement !== focused) focused.focus({ preventScroll: true });
    later(drawRest);
  }
  function jump(event) {
    event.preventDefault(); // the fragment says what is shown
    const section = document.querySelector(event.target.getAttribute("href"));
    section.scrollIntoView();
    section.setAttribute("tabindex", -1);
    section.focus({ preventScroll: true });
  }

  function head(eyebrow, title, ...line) {
    document.querySelector("header").replaceChildren(h("p", { class: "eyebrow" }, eyebrow), h("h1", {}, title),
      h("p", { class: "muted" }, line), h("nav", { "aria-label": "Sections" }, nav));
  }

  root.classList.add("js");
  if (content.page) {
    const { title, runs, created } = content.page;
    head("rlcli report", title, `${count(runs.length, "run")} · made `,
      h("time", { datetime: created }, created.replace("T", " ").replace("Z", " UTC")));
    show(sectionsOf(content.page));
  }
  return { h, content, fields, writeFields, controls, figure, fold, head, prose, swatch, show, notesOf, sectionsOf, format, isMissing, count, listeners, setView, view };
})();
