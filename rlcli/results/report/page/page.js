"use strict";
// Draws the charts of the page and plays its films. Numbers and labels come from the
// JSON in the page; nothing is written as HTML.
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const views = new Map();
  document.documentElement.classList.add("js");

  // As `charts.expand` in Python.
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

  const config = {
    background: null,
    axis: { labelFontSize: 11, titleFontSize: 12, titleFontWeight: 500, domainWidth: 1, titlePadding: 8 },
    legend: { labelFontSize: 12, labelLimit: 300 },
    aria: false,
  };

  async function embed(element, number) {
    const { spec, blocks } = charts[number];
    const { view } = await vegaEmbed(
      element,
      { ...spec, data: { name: "points", values: expand(blocks) } },
      { mode: "vega-lite", renderer: "svg", actions: false, ast: true, config, tooltip: { theme: "none" } },
    );
    views.set(number, view);
    element.style.minHeight = "";
    element.querySelector("svg").setAttribute("aria-hidden", "true"); // the place has a label
  }
  const drawings = new Map(); // element -> promise
  function draw(element) {
    if (!drawings.has(element)) {
      drawings.set(element, embed(element, Number(element.dataset.chart)).catch(console.error));
    }
    return drawings.get(element);
  }

  // Charts are drawn as they come near the window, and the others when there is time.
  const plots = [...document.querySelectorAll(".plot")];
  const near = new IntersectionObserver(
    (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => {
      near.unobserve(entry.target);
      draw(entry.target);
    }),
    { rootMargin: "400px" },
  );
  plots.forEach((plot) => near.observe(plot));
  const later = window.requestIdleCallback
    ? (run) => requestIdleCallback(run, { timeout: 500 }) : (run) => setTimeout(run, 50);
  async function drawRest() {
    const plot = plots.find((each) => !drawings.has(each));
    if (plot) {
      await draw(plot);
      later(drawRest);
    } else {
      await Promise.all(drawings.values());
      document.documentElement.setAttribute("data-drawn", "");
    }
  }
  later(drawRest);
  window.addEventListener("beforeprint", () => {
    document.querySelectorAll("details:not(.data)").forEach((each) => { each.open = true; });
    plots.forEach(draw);
  });

  function setCursor(number, x) {
    const view = views.get(number);
    if (view) view.signal("position", x).runAsync();
  }

  const format = (value) => value === null || value === undefined ? "–"
    : Number(value).toLocaleString("en", { maximumSignificantDigits: 5 });

  // The arrow keys move the cursor of a chart, whose values are read out.
  function describe(blocks, x) {
    const lines = blocks.filter((block) => block.x).flatMap((block) => {
      const index = block.x.indexOf(x);
      if (index < 0) return [];
      if (block.kind === "bar") return [`${format(x)} to ${format(block.x2[index])}: ${format(block.y[index])}`];
      if (block.y === undefined) {
        const shares = Object.keys(block).filter((key) => /^p\d+$/.test(key));
        return shares.map((key) => `action ${key.slice(1)}: ${format(100 * block[key][index])} %`);
      }
      const band = block.low ? ` (${format(block.low[index])} to ${format(block.high[index])})` : "";
      return [`${block.label}: ${format(block.y[index])}${band}`];
    });
    return `${format(x)} – ${lines.join("; ")}`;
  }
  for (const plot of plots) {
    const number = Number(plot.dataset.chart);
    const { blocks } = charts[number];
    const readout = plot.parentElement.querySelector(".readout");
    const readable = blocks.filter((block) => Array.isArray(block.x) && (block.y || block.p0));
    const places = [...new Set(readable.flatMap((block) => block.x))].sort((a, b) => a - b);
    let index = -1;
    plot.addEventListener("keydown", (event) => {
      const stride = event.shiftKey ? 10 : 1;
      const target = {
        ArrowRight: index + stride, ArrowLeft: Math.max(0, index - stride), Home: 0, End: places.length - 1,
      }[event.key];
      if (event.key === "Escape") { index = -1; setCursor(number, null); readout.textContent = ""; }
      if (target === undefined || !places.length) return;
      event.preventDefault();
      index = Math.min(target, places.length - 1);
      setCursor(number, places[index]);
      readout.textContent = describe(readable, places[index]);
    });
    plot.addEventListener("blur", () => { setCursor(number, null); readout.textContent = ""; });
  }

  // A film starts only when its button is pressed.
  const FRAMES_PER_SECOND = 20;
  for (const film of document.querySelectorAll(".film")) {
    const [canvas, sheet] = [film.querySelector("canvas"), film.querySelector(".frames")];
    const [button, slider, output] = ["button", "input", "output"].map((name) => film.querySelector(name));
    const captions = JSON.parse(film.dataset.captions), steps = JSON.parse(film.dataset.steps);
    const [columns, width, height] = ["columns", "width", "height"].map((name) => Number(film.dataset[name]));
    const followers = [...film.parentElement.querySelectorAll(".plot")].map((plot) => Number(plot.dataset.chart));
    const context = canvas.getContext("2d");
    let timer = null;
    function show(frame) {
      const left = (frame % columns) * width, top = Math.floor(frame / columns) * height;
      context.drawImage(sheet, left, top, width, height, 0, 0, width, height);
      output.textContent = captions[frame];
      slider.value = frame;
      slider.setAttribute("aria-valuetext", captions[frame]);
    }
    function follow(frame) { followers.forEach((number) => setCursor(number, steps[frame])); }
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
    sheet.decode().then(() => show(0));
  }
})();
