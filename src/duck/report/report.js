"use strict";
(() => {
  const root = document.documentElement;
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const css = (name, of = root) => getComputedStyle(of).getPropertyValue(`--${name}`).trim();
  const COLOUR_NAMES = new Set(["ink", "muted", "paper"]);
  const DATA_KEYS = new Set(["x", "y", "z", "text", "hovertext", "meta"]);

  // Plots name the colours of the page, so that they are legible in light, in dark and in print.
  function fillColours(value, key) {
    if (DATA_KEYS.has(key)) return value;
    if (Array.isArray(value)) return value.map((item) => fillColours(item, key));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, fillColours(item, name)]));
    }
    return /color/.test(key) && COLOUR_NAMES.has(value) ? css(value) : value;
  }

  function makeSpec(plot) {
    const spec = fillColours(JSON.parse(plot.parentElement.querySelector("script").textContent), "");
    const ink = css("ink"), axis = { automargin: true, zeroline: false, gridcolor: css("grid"), linecolor: css("edge"), zerolinecolor: css("edge"), tickcolor: css("edge") };
    Object.assign(spec.layout, {
      showlegend: false,
      hovermode: "closest",
      margin: { l: 8, r: 12, t: 10, b: 8 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: ink, family: "system-ui, sans-serif", size: 12 },
      hoverlabel: { namelength: -1, bgcolor: css("paper"), bordercolor: css("muted"), font: { color: ink } },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: css("muted"), activecolor: ink },
      dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
    });
    for (const name of ["xaxis", "yaxis"]) spec.layout[name] = { ...axis, ...spec.layout[name] };
    const off = new Set(all('.legend button[aria-pressed="false"]', plot.closest("figure")).map((button) => Number(button.dataset.place)));
    spec.data.forEach((trace) => { if (off.has(trace.meta)) trace.visible = false; });
    return spec;
  }

  const CONFIG = { responsive: true, displaylogo: false, modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]] };
  async function draw(plot) {
    const { data, layout } = makeSpec(plot);
    await Plotly.react(plot, data, layout, CONFIG);
    plot.dataset.drawn = "yes";
  }
  const drawnPlots = () => all(".plot[data-drawn]");

  // Fifty runs have hundreds of plots: each is drawn when it is about to scroll into view.
  const nearView = new IntersectionObserver((seen) => {
    seen.filter((entry) => entry.isIntersecting).forEach((entry) => {
      nearView.unobserve(entry.target);
      draw(entry.target);
    });
  }, { rootMargin: "300px" });
  all(".plot").forEach((plot) => nearView.observe(plot));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawnPlots().forEach(draw));

  all(".legend button").forEach((button) => button.addEventListener("click", () => {
    button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") === "false"));
    all(".plot[data-drawn]", button.closest("figure")).forEach(draw);
  }));

  // In print everything is open, in light colours, at the width of a sheet.
  let closedDetails = [];
  addEventListener("beforeprint", () => {
    root.dataset.light = "";
    closedDetails = all("details:not([open])");
    closedDetails.forEach((part) => { part.open = true; });
    all(".plot").forEach((plot) => {
      nearView.unobserve(plot);
      const { data, layout } = makeSpec(plot);
      const panels = plot.closest(".panels"), columns = panels.children.length === 1 ? 1 : Number(css("columns", panels)) || 2;
      Plotly.react(plot, data, { ...layout, autosize: false, width: columns === 1 ? 640 : Math.floor(640 / columns) - 10, height: Math.min(layout.height, 620) }, CONFIG);
      plot.dataset.drawn = "yes";
    });
  });
  addEventListener("afterprint", () => {
    delete root.dataset.light;
    drawnPlots().forEach(draw);
    closedDetails.forEach((part) => { part.open = false; });
  });

  // A link to a run opens its section.
  function openTarget() {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
    target.scrollIntoView();
  }
  addEventListener("hashchange", openTarget);
  openTarget();

  const table = document.getElementById("runs-table");
  if (!table) return;
  const body = table.tBodies[0];
  const value = (row, column) => row.cells[column].dataset.value;

  function compare(one, two, column, numeric) {
    const [a, b] = [value(one, column), value(two, column)];
    if (a === "" || b === "") return (a === "") - (b === "");
    return numeric ? a - b : a.localeCompare(b, undefined, { numeric: true });
  }

  all("thead button", table).forEach((button) => button.addEventListener("click", () => {
    const head = button.closest("th"), column = head.cellIndex, down = head.getAttribute("aria-sort") === "ascending";
    all("thead th", table).forEach((other) => { if (other.hasAttribute("aria-sort")) other.setAttribute("aria-sort", "none"); });
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...body.rows], numeric = head.classList.contains("num");
    const missing = (row) => value(row, column) === "";
    rows.sort((one, two) => (down && !missing(one) && !missing(two) ? compare(two, one, column, numeric) : compare(one, two, column, numeric)));
    body.append(...rows);
  }));

  const filters = document.getElementById("filters"), shown = document.getElementById("shown");
  function applyFilters() {
    const words = filters.elements.text.value.toLowerCase().split(/\s+/);
    const chosen = all("select", filters).filter((select) => select.value);
    let count = 0;
    for (const row of body.rows) {
      // Long requests are shortened in the table: the search covers their full text.
      const text = `${row.textContent} ${row.dataset.request}`.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word)) || chosen.some((select) => row.dataset[select.name] !== select.value);
      count += !row.hidden;
    }
    shown.textContent = `${count} of ${body.rows.length} shown`;
  }
  for (const event of ["input", "change"]) filters.addEventListener(event, applyFilters);
  filters.addEventListener("submit", (event) => event.preventDefault());
  applyFilters();
})();
