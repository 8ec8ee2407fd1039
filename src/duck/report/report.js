"use strict";
(() => {
  const root = document.documentElement;
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const css = (name, of = root) => getComputedStyle(of).getPropertyValue(`--${name}`).trim();
  const NAMED = new Set(["ink", "muted", "paper"]);
  const DATA = new Set(["x", "y", "z", "text", "hovertext", "meta"]);

  // Colours of the page have names in the data, so that the same plot is legible in light, in dark and on paper.
  function painted(value, key) {
    if (DATA.has(key)) return value;
    if (Array.isArray(value)) return value.map((item) => painted(item, key));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, painted(item, name)]));
    }
    return /color/.test(key) && NAMED.has(value) ? css(value) : value;
  }

  function spec(plot) {
    const found = painted(JSON.parse(plot.parentElement.querySelector("script").textContent), "");
    const ink = css("ink"), axis = { automargin: true, zeroline: false, gridcolor: css("grid"), linecolor: css("edge"), zerolinecolor: css("edge"), tickcolor: css("edge") };
    Object.assign(found.layout, {
      showlegend: false,
      hovermode: "closest",
      margin: { l: 8, r: 12, t: 10, b: 8 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: ink, family: "system-ui, sans-serif", size: 12 },
      hoverlabel: { bgcolor: css("paper"), bordercolor: css("muted"), font: { color: ink } },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: css("muted"), activecolor: ink },
      dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
    });
    for (const name of ["xaxis", "yaxis"]) found.layout[name] = { ...axis, ...found.layout[name] };
    const off = new Set(all('.legend button[aria-pressed="false"]', plot.closest("figure")).map((button) => Number(button.dataset.place)));
    found.data.forEach((trace) => { if (off.has(trace.meta)) trace.visible = false; });
    return found;
  }

  const CONFIG = { responsive: true, displaylogo: false, modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]] };
  async function draw(plot) {
    const { data, layout } = spec(plot);
    await Plotly.react(plot, data, layout, CONFIG);
    plot.dataset.drawn = "yes";
  }
  const drawn = () => all(".plot[data-drawn]");

  // Fifty runs have hundreds of plots: each is drawn when it comes near the eye.
  const near = new IntersectionObserver((seen) => {
    seen.filter((entry) => entry.isIntersecting).forEach((entry) => {
      near.unobserve(entry.target);
      draw(entry.target);
    });
  }, { rootMargin: "300px" });
  all(".plot").forEach((plot) => near.observe(plot));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn().forEach(draw));

  all(".legend button").forEach((button) => button.addEventListener("click", () => {
    button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") === "false"));
    all(".plot[data-drawn]", button.closest("figure")).forEach(draw);
  }));

  // Paper shows everything, in light colours, at the width of a sheet.
  let closed = [];
  addEventListener("beforeprint", () => {
    root.dataset.light = "";
    closed = all("details:not([open])");
    closed.forEach((part) => { part.open = true; });
    all(".plot").forEach((plot) => {
      near.unobserve(plot);
      const { data, layout } = spec(plot);
      const panels = plot.closest(".panels"), beside = panels.children.length === 1 ? 1 : Number(css("columns", panels)) || 2;
      Plotly.react(plot, data, { ...layout, autosize: false, width: beside === 1 ? 640 : Math.floor(640 / beside) - 10, height: Math.min(layout.height, 620) }, CONFIG);
      plot.dataset.drawn = "yes";
    });
  });
  addEventListener("afterprint", () => {
    delete root.dataset.light;
    drawn().forEach(draw);
    closed.forEach((part) => { part.open = false; });
  });

  // A link to a run opens it.
  function open() {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
    target.scrollIntoView();
  }
  addEventListener("hashchange", open);
  open();

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
  function filter() {
    const words = filters.elements.text.value.toLowerCase().split(/\s+/);
    const chosen = all("select", filters).filter((select) => select.value);
    let count = 0;
    for (const row of body.rows) {
      // The words of a long request are shortened: what was asked is looked for in all of them.
      const text = `${row.textContent} ${row.dataset.asked}`.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word)) || chosen.some((select) => row.dataset[select.name] !== select.value);
      count += !row.hidden;
    }
    shown.textContent = `${count} of ${body.rows.length} shown`;
  }
  for (const event of ["input", "change"]) filters.addEventListener(event, filter);
  filters.addEventListener("submit", (event) => event.preventDefault());
  filter();
})();
