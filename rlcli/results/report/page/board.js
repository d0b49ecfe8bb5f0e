
// The board: asks its server for runs and for parts of the document, and draws them again
// when they have changed. The fragment of the link says what is shown.
(() => {
  const { h, content, fields, writeFields, figure, fold, format, isMissing, count, prose } = page;
  if (!content.board) return;
  const PERIOD = 1000; // milliseconds between two questions
  const rows = new Map(); // id -> run
  let version = 0, studied = 0, known = 0, ids = [], studies = [], error = null, cursor = null, updated = null;

  const ask = async (path, query) => {
    const answer = await fetch(`${path}?${new URLSearchParams(query)}`, { cache: "no-store" });
    if (!answer.ok) throw Object.assign(new Error(`the server answered ${answer.status}`), { status: answer.status });
    return answer.json();
  };
  const describe = (failure) => failure.status >= 500
    ? `The board has failed: ${failure.message}.`
    : `The board does not answer (${failure.message}): start it again, and open its new link.`;

  // ------------------------------------------------------------------ selection
  const chosen = () => new Set((fields.get("runs") ?? "").split(",").filter(Boolean));
  const query = () => {
    const found = { filter: fields.get("filter") ?? "", runs: [...chosen()].join(",") };
    for (const name of ["x", "y", "center", "group", "range"]) if (fields.get(name)) found[name] = fields.get(name);
    return found;
  };
  function change(values) {
    writeFields(values);
    drawTable();
    load();
  }
  function toggle(id) {
    const found = chosen();
    if (!found.delete(id)) found.add(id);
    change({ runs: [...found].join(",") });
  }

  // ---------------------------------------------------------------------- table
  const time = (text) => (text ?? "").replace("T", " ").replace("Z", "");
  const short = (value) => isMissing(value) ? "–"
    : Number(value).toLocaleString("en", { notation: "compact", maximumSignificantDigits: 3 });
  const value = (run) => isMissing(run.return) ? "–"
    : `${run.source === "training" ? "~" : ""}${format(Number(run.return.toPrecision(3)))}`;
  const COLUMNS = [
    ["run", "run", "The folder of the run", (run) => run.run],
    ["recipe", "recipe", "The recipe, and what was changed in it", (run) => run.recipe ?? ""],
    ["status", "status", "created, running, finished, stopped, failed, killed or broken", (run) => run.status ?? ""],
    ["steps", "steps", "Environment steps of each seed, and all that it will make", (run) => run.steps],
    ["return", "return", "Interquartile mean over seeds of the last evaluation; ~ is that of training", (run) => run.return],
    ["interval", "95 % interval", "Bootstrap interval over seeds", (run) => run.interval?.[0]],
    ["seeds", "seeds", "Seeds in one program", (run) => run.seeds],
    ["speed", "steps/s", "Environment steps per second, of all seeds", (run) => run.speed],
    ["created", "created", "When the run began, in UTC", (run) => run.created ?? ""],
  ];
  const filter = h("input", { type: "text", class: "filter", "aria-label": "Filter of the runs", spellcheck: "false", autocomplete: "off",
    placeholder: "Filter: words, return>=400, updater.name=ppo" });
  const message = h("p", { class: "message", role: "status" });
  const total = h("span", { class: "muted" });
  const body = h("tbody"), heads = h("tr");
  const clear = h("button", { type: "button", onclick: () => change({ runs: "" }) }, "Show all");
  const tableBox = h("div", { class: "scroll runs", tabindex: 0, role: "group", "aria-label": "Runs" },
    h("table", {}, h("thead", {}, heads), body));
  let typing = null;
  filter.value = fields.get("filter") ?? "";
  filter.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => { writeFields({ filter: filter.value.trim() }); poll(); load(); }, 250);
  });

  function heading([name, label, meaning]) {
    const [key, isDown] = [sortKey(), (fields.get("sort") ?? "-created").startsWith("-")];
    const order = key === name ? (isDown ? "descending" : "ascending") : null;
    const sort = () => {
      const first = ["run", "recipe", "status"].includes(name) ? name : `-${name}`;
      const other = first === name ? `-${name}` : name;
      writeFields({ sort: (fields.get("sort") ?? "-created") === first ? other : first });
      drawTable();
    };
    return h("th", { scope: "col", class: ["run", "recipe", "status"].includes(name) ? "text" : null, "aria-sort": order },
      h("button", { type: "button", class: "sort", title: meaning, onclick: sort }, label, order ? (isDown ? " ↓" : " ↑") : ""));
  }
  const sortKey = () => (fields.get("sort") ?? "-created").replace(/^-/, "");

  const folder = content.board.folders.length === 1 ? `${content.board.folders[0]}/` : "";
  const nameOf = ({ run }) => (folder && run.startsWith(folder) ? run.slice(folder.length) : run);

  function draw(run) {
    const box = h("input", { type: "checkbox", "aria-label": `Show ${run.run}`, onchange: () => toggle(run.id) });
    const progress = run.total ? h("progress", { max: run.total, value: run.steps ?? 0, "aria-hidden": "true" }) : null;
    const row = h("tr", { class: `run-row ${/^[a-z]+$/.test(run.status ?? "") ? run.status : ""}`, "data-id": run.id },
      h("th", { scope: "row", class: "name" }, h("label", {}, box, h("span", { class: "path", title: run.run }, nameOf(run)),
        run.smoke ? h("span", { class: "tag" }, "smoke") : null, run.tags.map((tag) => h("span", { class: "tag" }, tag)))),
      h("td", { class: "text" }, run.recipe, run.changes.length ? h("span", { class: "muted" }, ` ${run.changes.join(" ")}`) : null),
      h("td", { class: "text" }, h("span", { class: "state" }, run.status), run.reason ? h("span", { class: "reason" }, run.reason) : null),
      h("td", { title: run.total ? `${format(run.steps)} of ${format(run.total)}` : null }, short(run.steps), progress),
      h("td", {}, value(run)),
      h("td", {}, run.interval ? run.interval.map((each) => format(Number(each?.toPrecision(3)))).join(" to ") : "–"),
      h("td", {}, run.seeds), h("td", {}, short(run.speed)), h("td", {}, time(run.created)));
    return { ...run, row, box };
  }

  const MOST = 2000; // rows that are drawn
  function drawTable() {
    const [name, sign] = [sortKey(), (fields.get("sort") ?? "-created").startsWith("-") ? -1 : 1];
    const key = (COLUMNS.find((each) => each[0] === name) ?? COLUMNS[0])[3];
    const found = ids.map((id) => rows.get(id)).filter(Boolean).sort((one, other) => {
      const [a, b] = [key(one), key(other)];
      if (isMissing(a) || isMissing(b)) return isMissing(a) - isMissing(b);
      return sign * (typeof a === "number" ? a - b : String(a).localeCompare(String(b)));
    });
    const marked = chosen();
    const shown = found.slice(0, MOST);
    shown.forEach((each) => {
      each.box.checked = marked.has(each.id);
      each.row.classList.toggle("here", each.id === cursor);
    });
    const elements = shown.map((each) => each.row);
    if (elements.length !== body.children.length || elements.some((each, index) => body.children[index] !== each)) {
      const focused = document.activeElement;
      body.replaceChildren(...elements);
      if (focused?.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true });
    }
    heads.replaceChildren(...COLUMNS.map(heading));
    const running = found.filter((each) => each.status === "running").length;
    total.textContent = `${count(found.length, "run")}${found.length < known ? ` of ${format(known)}` : ""}`
      + `${running ? `, ${format(running)} running` : ""}${marked.size ? `, ${format(marked.size)} selected` : ""}`
      + `${found.length > MOST ? `; the first ${format(MOST)} are listed` : ""}`;
    clear.hidden = !marked.size;
    message.textContent = error ?? (known ? found.length ? "" : "No run matches the filter." : "There are no runs yet.");
    status();
  }

  function status() {
    const state = error ? "not up to date" : updated ? `live, last change ${updated.toLocaleTimeString("en-GB")}` : "reading the runs";
    document.getElementById("state").textContent = state;
  }

  // --------------------------------------------------------------------- studies
  const study = (each) => h("article", { class: "group" }, h("h3", {}, each.folder), h("p", {}, each.states[0]),
    each.claims.map((sentence) => h("p", { class: "claim" }, prose(sentence))),
    each.states.length > 1 ? fold(`study/${each.folder}`, {}, count(each.states.length - 1, "failure"),
      h("ul", {}, each.states.slice(1).map((line) => h("li", {}, line)))) : null,
    figure(each.chart, `study/${each.folder}/chart`));

  // ----------------------------------------------------------------------- films
  function drawFilm(run, name) {
    const source = `film?${new URLSearchParams({ run: run.id, name })}`, place = h("div", { class: "film" });
    const details = fold(`film/${run.id}/${name}`, { class: "run" }, name, place);
    const load = () => {
      if (!details.open || place.firstChild) return;
      const label = `${name} of ${run.run}`;
      const found = name.endsWith(".mp4") ? h("video", { src: source, controls: true, "aria-label": label }) : h("img", { src: source, alt: label });
      found.addEventListener("error", () => place.replaceChildren(h("p", { class: "fine" }, "This file is not a film, or is too large.")));
      place.append(found);
    };
    details.addEventListener("toggle", load);
    load();
    return details;
  }
  const films = (found) => found.films.length ? found.films.map((run) => [h("h3", {}, run.run), run.names.map((name) => drawFilm(run, name))])
    : [h("p", {}, "The selected runs have no films. ", h("code", {}, "rlcli render"), " writes one, as does ", h("code", {}, "train.evaluate.render"), ".")];

  // ----------------------------------------------------------------------- parts
  // Those below the curves are asked for when they come near the window.
  const PARTS = { learning: ["learning", "results"], diagnostics: ["diagnostics"], recipes: ["recipes"], films: ["films"], provenance: ["provenance"] };
  const parts = new Map(), wanted = new Set(["learning"]);
  const near = new IntersectionObserver((entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => {
    if (wanted.has(entry.target.id) || !PARTS[entry.target.id]) return;
    wanted.add(entry.target.id);
    load();
  }), { rootMargin: "300px" });

  let loading = false, again = false;
  async function load() {
    if (loading) { again = true; return; }
    loading = true;
    try {
      do {
        again = false;
        for (const name of wanted) {
          try {
            parts.set(name, await ask(`part/${name}`, query()));
          } catch (failure) {
            error = describe(failure);
          }
          show();
        }
      } while (again);
    } finally {
      loading = false;
    }
    document.documentElement.setAttribute("data-loaded", version);
  }

  // The results have the notes of the curves.
  const withNotes = (section, notes) => ["results", "learning"].includes(section.id) ? section
    : { ...section, data: [section.data, notes], draw: () => [section.draw(), page.notesOf(notes)] };

  function show() {
    const sections = [{ id: "runs", title: "Runs", data: 0, draw: () => [
      h("div", { class: "bar" }, filter, total, clear), message, tableBox] }];
    if (studies.length) sections.push({ id: "studies", title: studies.length === 1 ? "Study" : "Studies", data: studies, draw: () => studies.map(study) });
    for (const [name, names] of Object.entries(PARTS)) {
      const found = parts.get(name);
      if (found && !found.error && name !== "films") {
        const all = { episodes: [], updates: [], notes: [], labels: [], ...found };
        const drawn = page.sectionsOf(all);
        sections.push(...names.map((id) => withNotes(drawn.find((each) => each.id === id), all.notes)));
      } else {
        const [id] = names, title = { diagnostics: "Diagnostics", recipes: "Recipes", films: "Films", provenance: "Provenance" }[id] ?? "Learning curves";
        sections.push({ id, title, data: found ?? null, draw: () => !found ? h("p", { class: "muted waits" }, "Reading …")
          : found.error ? [h("p", {}, prose(found.error)), h("p", { class: "fine" }, prose(found.hint ?? ""))] : [films(found), page.notesOf(found.notes)] });
      }
    }
    page.show(sections);
    Object.keys(PARTS).forEach((name) => { const place = document.getElementById(name); if (place) near.observe(place); });
    drawChoices(parts.get("learning")?.metrics ?? []);
  }

  // ---------------------------------------------------------- choices of the curves
  const select = (name, label, first) => h("select", { "aria-label": label, onchange: (event) => {
    if (name === "x") page.setView({ range: null });
    change({ [name]: event.target.value });
  } }, first);
  const option = (text, title, label) => h("option", { value: text, title }, label ?? text);
  const choices = {
    y: select("y", "Metric", option("", null, "return")), x: select("x", "Horizontal axis", ["", "seconds", "updates"].map((each) => option(each, null, each || "steps"))),
    center: select("center", "Center over seeds", [option("", null, "mean"), option("iqm", null, "IQM")]),
    group: select("group", "Groups", [option("", null, "by recipe or cell"), option("run", null, "each run"), option("name", null, "by name")]),
  };
  page.controls.querySelector(".more").append(...Object.entries({ y: "metric", x: "by", center: "center", group: "groups" })
    .map(([name, label]) => h("label", {}, label, " ", choices[name])));
  function drawChoices(metrics) {
    if (choices.y.dataset.metrics !== JSON.stringify(metrics)) {
      choices.y.replaceChildren(option("", null, "return"), ...metrics.map(({ name, label, meaning }) => option(name, meaning, label)));
      choices.y.dataset.metrics = JSON.stringify(metrics);
    }
    for (const [name, choice] of Object.entries(choices)) choice.value = fields.get(name) ?? "";
  }
  page.listeners.push(() => { clearTimeout(typing); typing = setTimeout(load, 300); });

  // -------------------------------------------------------------------- keyboard
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.matches("input[type=text], select, .plot");
    if (event.key === "Escape" && event.target === filter) return filter.blur();
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    const listed = [...body.children], index = listed.findIndex((each) => each.dataset.id === cursor);
    if (event.key === "/") filter.focus();
    else if ("jk".includes(event.key) && listed.length) {
      const next = listed[Math.min(listed.length - 1, Math.max(0, index + (event.key === "j" ? 1 : -1)))];
      cursor = next.dataset.id;
      drawTable();
      next.scrollIntoView({ block: "nearest" });
    } else if (event.key === "x" && cursor) toggle(cursor);
    else if (event.key === "c") change({ runs: "" });
    else return;
    event.preventDefault();
  });

  // ---------------------------------------------------------------------- changes
  let asking = false;
  async function poll() {
    if (asking) return;
    asking = true;
    try {
      const before = version, listed = ids.join();
      const found = await ask("runs", { filter: fields.get("filter") ?? "", known: version, studied });
      error = found.error ? `${found.error}${found.hint ? ` – ${found.hint}` : ""}` : null;
      if (!found.error) {
        ({ version, ids, total: known } = found);
        [studies, studied] = [found.studies ?? studies, found.studied ?? studied];
        for (const run of found.rows) rows.set(run.id, draw(run));
        if (before !== version) updated = new Date();
        const shown = chosen().size ? chosen() : new Set(ids);
        if (found.rows.some((run) => shown.has(run.id)) || listed !== ids.join()) load();
        if (found.studies) show();
      }
    } catch (failure) {
      error = describe(failure);
    }
    asking = false;
    drawTable();
  }
  window.addEventListener("hashchange", () => { if (location.hash.includes("=")) location.reload(); }); // a pasted link

  page.head("rlcli board", content.board.folders.join(", "), h("span", { id: "state" }), " · ",
    h("span", {}, "/ filter, j and k move, x selects, c shows all"));
  show();
  poll();
  setInterval(() => { if (!document.hidden) poll(); }, PERIOD);
})();
