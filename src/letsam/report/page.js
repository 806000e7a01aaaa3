"use strict";
const plots = JSON.parse(document.getElementById("data").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function layout(plot) {
  const axis = { gridcolor: css("--grid"), linecolor: css("--line"), zeroline: false, automargin: true, tickfont: { color: css("--soft") } };
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: css("--ink") },
    margin: { l: 8, r: 14, t: 14, b: 8 }, hovermode: "x unified", showlegend: false,
    hoverlabel: { bgcolor: css("--card"), bordercolor: css("--line"), font: { color: css("--ink") } },
    xaxis: { ...axis, title: { text: "epoch", font: { color: css("--soft") }, standoff: 8 }, showgrid: false, hoverformat: "d", unifiedhovertitle: { text: "epoch %{x}" } },
    yaxis: { ...axis, ...plot.yaxis, hoverformat: ".4~g" },
  };
}

function draw() {
  for (const plot of plots) {
    Plotly.react(plot.id, plot.traces, layout(plot), { responsive: true, displaylogo: false, displayModeBar: false });
  }
}

const chips = [...document.querySelectorAll(".chips button")];
const shown = (chip) => chip.getAttribute("aria-pressed") === "true";

function show(wanted) {
  for (const chip of chips) chip.setAttribute("aria-pressed", String(wanted(chip)));
  const names = new Set(chips.filter(shown).map((chip) => chip.dataset.method));
  for (const plot of plots) for (const trace of plot.traces) trace.visible = names.has(trace.name);
  draw();
}

for (const chip of chips) {
  chip.addEventListener("click", () => show((other) => (other === chip ? !shown(chip) : shown(other))));
  chip.addEventListener("dblclick", () => {
    const alone = chips.every((other) => shown(other) === (other === chip));
    show((other) => alone || other === chip);
  });
}
dark.addEventListener("change", draw);
draw();
