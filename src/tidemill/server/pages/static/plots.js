// Plots over time: bars that can be hovered and zoomed. Without this file, a drawing and a table stand there.
"use strict";

(() => {
  const drawn = new Map();
  const colours = { bar: "--bar", ok: "--ok", run: "--run", wait: "--wait", late: "--late", fail: "--fail", off: "--off" };
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // Bars are stacked: each series is drawn up to the sum of itself and of those below it, the highest first.
  function stack(series) {
    const sums = [];
    for (const one of series) {
      const below = sums.at(-1) ?? one.values.map(() => 0);
      sums.push(one.values.map((value, place) => value + below[place]));
    }
    return sums;
  }

  function draw(figure) {
    const given = JSON.parse(figure.dataset.plot);
    const place = figure.querySelector(".live-plot");
    const [first, last] = [given.times.at(0), given.times.at(-1)];
    if (!place || !given.series.length || first === last) { return; }
    const step = { hour: 3600, day: 86400 }[given.step];
    const series = [...given.series].reverse();
    const sums = stack(given.series).reverse();
    const axis = { stroke: colour("--dim"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    const paths = step ? uPlot.paths.bars({ size: [0.8, 60], align: 1 }) : uPlot.paths.stepped({ align: 1 });
    const plot = new uPlot({
      width: Math.max(place.clientWidth - 16, 200),
      height: 180,
      cursor: { points: { show: false }, drag: { x: true, y: false } },
      scales: { x: { range: (_, low, high) => [low, high === last && step ? last + step : high] }, y: { range: (_, low, high) => [0, Math.max(high, 1) * 1.05] } },
      axes: [axis, { ...axis, size: 64, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 1e7, 1e8] }],
      series: [
        { label: given.step },
        ...series.map((one, row) => ({
          label: one.label,
          fill: colour(colours[one.shape] ?? "--bar"),
          stroke: colour(colours[one.shape] ?? "--bar"),
          width: step ? 0 : 1,
          paths,
          points: { show: !step },
          value: (_, __, ___, at) => (at === null ? "" : series[row].values[at].toLocaleString()),
        })),
      ],
    }, [given.times, ...sums], place);
    figure.classList.add("drawn");
    drawn.set(figure, plot);
  }

  function drawAll() {
    for (const [figure, plot] of drawn) {
      if (!figure.isConnected) { plot.destroy(); drawn.delete(figure); }
    }
    for (const figure of document.querySelectorAll("figure[data-plot]")) {
      if (!drawn.has(figure)) { draw(figure); }
    }
  }

  function drawAgain() {
    for (const [figure, plot] of drawn) {
      plot.destroy();
      figure.classList.remove("drawn");
    }
    drawn.clear();
    drawAll();
  }

  function resize() {
    for (const plot of drawn.values()) {
      const width = Math.max(plot.root.parentElement.clientWidth - 16, 200);
      if (width !== plot.width) { plot.setSize({ width, height: 180 }); }
    }
  }

  drawAll();
  new MutationObserver(drawAll).observe(document.querySelector("main"), { childList: true });
  window.addEventListener("resize", resize);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAgain);
})();
