'use strict';
// Draws a report. All text that processes choose, such as names, is set as text, never as HTML.
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const root = document.documentElement;
  const get = (id) => document.getElementById(id);
  const query = (id, selector) => document.querySelector(`#${id} ${selector}`);
  const isDark = matchMedia('(prefers-color-scheme: dark)');

  // Twelve colours that are distinct for people with any kind of colour blindness, and grey for the
  // rest.
  const COLOURS = {
    light: ['#332288', '#88ccee', '#117733', '#ddcc77', '#cc6677', '#44aa99', '#882255', '#6699cc', '#999933', '#aa4499', '#661100'],
    dark: ['#8578e8', '#88ccee', '#4cb56b', '#ddcc77', '#e58a98', '#44aa99', '#cf5f97', '#6699cc', '#b9b94f', '#c97fc0', '#c4663e'],
  };
  const REST = { light: '#a3a7b0', dark: '#6b707a' };
  const NOT_THERE = { light: '#d9dce2', dark: '#3f444d' };

  const state = { by: data.by, focus: null, theme: 'auto', patterns: false, at: data.at, isPrinted: false };
  const charts = [];

  const theme = () => (state.isPrinted ? 'light' : state.theme !== 'auto' ? state.theme : isDark.matches ? 'dark' : 'light');
  const restLabel = (count) => (count === null ? 'others' : count === 1 ? '1 other' : `${count} others`);
  const grouping = () => data.groupings.find((grouping) => grouping.by === state.by);

  // A name is a text, null for none, false if it is unknown, or the number of other groups.
  const label = (name) => (name && name.others ? restLabel(name.others) : name === null ? `no ${state.by}` : name === false ? 'not known' : name === '' ? '""' : name);

  const element = (tag, text, className) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  };

  const bytes = (count) => {
    const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
    let value = Math.abs(count);
    let unit = 0;
    while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
    const digits = unit === 0 || value >= 100 ? 0 : 1;
    return `${count < 0 ? '-' : ''}${value.toFixed(digits)} ${units[unit]}`;
  };
  // An axis with marks at whole numbers of a unit.
  const byteAxis = (most, parts) => {
    const unit = 1024 ** Math.floor(Math.log(Math.max(most / 4, 1)) / Math.log(1024));
    const interval = unit * 2 ** Math.max(0, Math.ceil(Math.log2(most / parts / unit)));
    return { interval, max: Math.max(1, Math.ceil(most / interval)) * interval };
  };
  const rate = (count) => `${bytes(count)}/s`;
  const processors = (count) => (count >= 10 ? count.toFixed(1) : count.toFixed(2));
  const seconds = (ns) => (ns >= 1e9 ? `${(ns / 1e9).toFixed(1)} s` : `${(ns / 1e6).toFixed(1)} ms`);
  const two = (number) => String(number).padStart(2, '0');
  const clock = (ms) => {
    const date = new Date(ms);
    return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  };

  // A table. Each column is [heading, text of a row, whether it is a number, or minor: hidden on a narrow screen].
  const table = (columns, rows, className) => {
    const made = element('table');
    const head = made.createTHead().insertRow();
    const name = (kind) => (kind === true ? 'number' : kind || '');
    columns.forEach(([heading, , kind]) => {
      const cell = element('th', heading, name(kind));
      cell.scope = 'col';
      head.append(cell);
    });
    const body = made.createTBody();
    rows.forEach((row) => {
      const line = body.insertRow();
      if (className) line.className = className(row);
      columns.forEach(([, text, kind]) => line.append(element('td', text(row), name(kind))));
    });
    return made;
  };

  const numbers = (id, commands) => {
    const place = query(id, '.numbers');
    place.replaceChildren('The numbers: ');
    commands.forEach(([command, behind], index) => {
      if (index > 0) place.append('; ');
      // An option is not broken at its dashes.
      const code = element('code');
      const parts = command.replaceAll('@time@', state.at).split(/(?<= )(--?[a-z][a-z-]*)/);
      code.append(...parts.map((part, at) => (at % 2 === 1 ? element('span', part, 'option') : part)));
      place.append(code);
      if (behind) place.append(` ${behind}`);
    });
  };

  // The selection: nothing, a group, or all groups without a colour of their own.
  const OTHERS = 'others';
  const isSame = (a, b) => a === b || (a !== null && b !== null && a !== OTHERS && b !== OTHERS && a.name === b.name);
  const choose = (focus) => { state.focus = isSame(state.focus, focus) ? null : focus; draw(); };
  // Whether a group is shown.
  const isShown = (name) => {
    if (state.focus === null) return true;
    return state.focus === OTHERS ? !grouping().names.includes(name) : name === state.focus.name;
  };

  // The groups of a chart: their names, their colours, and what selecting them means.
  const groups = () => {
    const { names, rest_count: count } = grouping();
    const all = names.map((name, index) => ({ label: label(name), colour: COLOURS[theme()][index], focus: { name }, index }));
    if (count !== 0) all.push({ label: restLabel(count), colour: REST[theme()], focus: OTHERS, index: names.length });
    return all;
  };
  // The colour of text that can be read on a colour.
  const ink = (colour) => {
    const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
    return 0.3 * red + 0.6 * green + 0.1 * blue > 130 ? '#111' : '#fff';
  };
  const colourOf = (name) => {
    const index = grouping().names.findIndex((known) => known === name);
    return index < 0 ? REST[theme()] : COLOURS[theme()][index];
  };

  const drawLegend = () => {
    const place = get('legend');
    place.classList.toggle('chosen', state.focus !== null);
    place.replaceChildren(...groups().map((group) => {
      const button = element('button');
      button.type = 'button';
      const colour = element('i');
      colour.style.background = group.colour;
      button.append(colour, element('span', group.label));
      button.setAttribute('aria-pressed', String(isSame(state.focus, group.focus)));
      button.addEventListener('click', () => choose(group.focus));
      return button;
    }));
    get('focus').textContent = state.focus === null ? '' : `Only ${state.focus === OTHERS ? OTHERS : label(state.focus.name)}`;
    get('all').hidden = state.focus === null;
  };

  const chart = (id) => {
    const place = query(id, '.chart');
    const made = echarts.init(place, null, { renderer: 'svg' });
    charts.push(made);
    return made;
  };

  // A colour of the styles.
  const colourFor = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  const axis = () => {
    const [line, soft] = ['line', 'soft'].map(colourFor);
    return { axisLine: { lineStyle: { color: line } }, axisLabel: { color: soft, hideOverlap: true }, splitLine: { lineStyle: { color: line } }, nameTextStyle: { color: soft } };
  };
  const tip = (lines) => ({
    confine: true, backgroundColor: colourFor('back'), borderColor: colourFor('line'), textStyle: { color: colourFor('text'), fontSize: 13 },
    formatter: (point) => {
      const box = element('div', undefined, 'tip');
      box.append(...lines(point));
      return box;
    },
  });
  const tipLine = (name, value, colour) => {
    const line = element('div');
    const left = element('span', name);
    if (colour) left.style.borderLeft = `.7rem solid ${colour}`;
    if (colour) left.style.paddingLeft = '.4rem';
    line.append(left, element('b', value));
    return line;
  };

  // The kinds of incidents that have marks above the charts, the most important last: it is drawn over
  // others. It is also a little wider, so that its label stays where there is no room for all. The list
  // below the charts has all.
  const MARKS = { forks: '#1f9257', boot: '#6f72af', disk: '#b3479f', restart: '#b58105', oom: '#d4351c' };
  const marks = () => Object.entries(MARKS).flatMap(([kind, color], rank) => data.incidents
    .filter((incident) => incident.kind === kind)
    .flatMap(({ ms, times }) => times || [ms])
    .map((ms) => ({ name: kind, value: [ms, 1], itemStyle: { color }, symbolSize: [2 + rank / 10, 10] })));

  // The points of a series. A single point between gaps would be invisible without a mark.
  const isKnown = (value) => value !== null && value !== undefined;
  const pointsOf = (values) => data.times.map((ms, index) => {
    const isAlone = isKnown(values[index]) && !isKnown(values[index - 1]) && !isKnown(values[index + 1]);
    return isAlone ? { value: [ms, values[index]], symbol: 'circle', symbolSize: 6 } : [ms, values[index]];
  });

  // A stacked area for each group, without lines, which would hide peaks as narrow as they are. A rate is
  // that since the previous point; memory is drawn until the next point, which may be the begin of a gap.
  const drawOverTime = (made, kind, format, further, machine) => {
    const rows = grouping()[kind];
    const shown = groups().filter((group) => state.focus === null || isSame(state.focus, group.focus));
    const series = shown.map((group) => ({ name: group.label, colour: group.colour, values: rows[group.index], focus: group.focus }));
    if (state.focus === null && further) series.push({ ...further, focus: null });
    const areas = series.map(({ name, colour, values, focus }) => ({
      type: 'line', name, stack: 'all', symbol: 'none', triggerLineEvent: focus !== null,
      color: colour, areaStyle: { opacity: 0.9 }, lineStyle: { width: 0 }, step: kind === 'memory' ? 'end' : 'start',
      emphasis: { disabled: true }, data: pointsOf(values),
    }));
    const line = state.focus === null && machine ? [{
      type: 'line', name: machine.name, symbol: 'none', color: colourFor('text'),
      lineStyle: { width: 1.2, type: [4, 3] }, data: pointsOf(machine.values),
    }] : [];
    const sums = data.times.map((_, index) => series.reduce((sum, one) => sum + (one.values[index] || 0), 0));
    const most = Math.max(1, ...sums, ...(line.length > 0 ? machine.values.map((value) => value || 0) : []));
    const old = made.getOption();
    const zoom = old && old.dataZoom ? { start: old.dataZoom[0].start, end: old.dataZoom[0].end } : {};
    made.setOption({
      animation: false,
      aria: { enabled: true, decal: { show: state.patterns } },
      grid: { left: 80, right: 32, top: 36, bottom: 76 },
      tooltip: {
        trigger: 'axis', order: 'seriesDesc',
        ...tip((points) => [
          element('strong', clock(points[0].value[0])),
          ...points.filter((point) => isKnown(point.value[1])).map((point) => tipLine(point.seriesName, format(point.value[1]), point.color)),
        ]),
      },
      xAxis: { type: 'time', ...axis(), axisLabel: { ...axis().axisLabel, margin: 14 }, splitLine: { show: false } },
      yAxis: [
        { type: 'value', ...axis(), min: 0, ...(format === processors ? {} : byteAxis(most, 5)), axisLabel: { ...axis().axisLabel, formatter: format } },
        { type: 'value', show: false, max: 1 },
      ],
      dataZoom: [
        { type: 'inside', filterMode: 'none', zoomOnMouseWheel: 'ctrl', moveOnMouseWheel: false, ...zoom },
        { type: 'slider', filterMode: 'none', height: 22, bottom: 12, showDetail: false, ...zoom },
      ],
      series: [...areas, ...line, {
        type: 'scatter', name: 'marks', yAxisIndex: 1, symbol: 'rect', symbolOffset: [0, -6], silent: true, tooltip: { show: false }, data: marks(),
        label: { show: true, formatter: '{b}', position: 'top', minMargin: 6, color: colourFor('text') }, labelLayout: { hideOverlap: true },
      }],
    }, { notMerge: true });
    made.off('click');
    made.on('click', (event) => {
      const clicked = event.componentType === 'series' && series[event.seriesIndex];
      if (clicked && clicked.focus) choose(clicked.focus);
    });
  };

  // Commands refer to the moment that was clicked.
  const takeMoment = (made) => made.getZr().on('click', (event) => {
    const ms = made.convertFromPixel({ xAxisIndex: 0 }, event.offsetX);
    const known = data.times.filter((time, index) => data.known[index] && time <= ms);
    if (known.length === 0) return;
    state.at = new Date(known[known.length - 1]).toISOString();
    drawNumbers();
  });

  const drawTreemap = (made) => {
    const { processes, rest } = data.present;
    const place = data.groupings.findIndex((one) => one.by === state.by);
    const nodes = new Map();
    const add = (name, child) => {
      const key = JSON.stringify(name);
      if (!nodes.has(key)) nodes.set(key, { own: name, name: label(name), value: 0, children: [], itemStyle: { color: colourOf(name) } });
      const node = nodes.get(key);
      node.value += child.value;
      node.children.push({ ...child, label: { color: state.patterns ? '#fff' : ink(colourOf(name)) } });
    };
    processes.forEach((row) => {
      if (isShown(row.groups[place])) add(row.groups[place], { own: row.groups[place], name: `${row.comm} ${row.pid}`, value: row.bytes });
    });
    rest[place].forEach(([name, count, sum]) => {
      if (isShown(name)) add(name, { own: name, name: `${count} smaller ones`, value: sum });
    });
    // Where there is no room, a label would be one letter.
    const all = [...nodes.values()].reduce((sum, node) => sum + node.value, 0);
    const ifRoom = (format) => (point) => (point.value * made.getWidth() * made.getHeight() > 1500 * all ? format(point) : '');
    made.setOption({
      animation: false,
      aria: { enabled: true, decal: { show: state.patterns } },
      tooltip: tip((point) => [tipLine((point.treePathInfo || []).slice(1).map((node) => node.name).join(' / ') || point.name, bytes(point.value))]),
      series: [{
        type: 'treemap', name: 'all', roam: false, nodeClick: false, breadcrumb: { show: false }, width: '100%', height: '100%', visibleMin: 60, left: 0, top: 0,
        label: { show: true, overflow: 'truncate', lineOverflow: 'truncate', lineHeight: 18, textBorderColor: '#111', textBorderWidth: state.patterns ? 3 : 0, formatter: ifRoom((point) => `${point.name}\n${bytes(point.value)}`) },
        upperLabel: { show: true, height: 20, color: colourFor('text'), overflow: 'truncate', formatter: ifRoom((point) => `${point.name}  ${bytes(point.value)}`) },
        itemStyle: { borderColor: colourFor('card'), gapWidth: 1 },
        levels: [{ itemStyle: { borderWidth: 0, gapWidth: 3 }, upperLabel: { show: false } }, { itemStyle: { borderWidth: 1, gapWidth: 1, borderColor: colourFor('line') } }, {}],
        data: [...nodes.values()].sort((a, b) => b.value - a.value),
      }],
    }, { notMerge: true });
    made.off('click');
    made.on('click', (event) => {
      if (event.data && event.data.own !== undefined) choose({ name: event.data.own });
    });
  };

  const drawAccount = () => {
    const { account } = data.present;
    if (!account) return;
    const part = (count) => (count === null ? '-' : `${(100 * count / account.total).toFixed(1)} %`);
    const rows = [{ name: 'total', bytes: account.total, meaning: 'MemTotal', part_of: null }, ...account.lines];
    get('account').replaceChildren(table([
      ['The machine', (row) => row.name.replace(/_bytes$/, '').replaceAll('_', ' ')],
      ['Size', (row) => (row.bytes === null ? '-' : bytes(row.bytes)), true],
      ['Part', (row) => part(row.bytes), true],
      ['Meaning', (row) => (row.bytes === null ? `${row.meaning}: ${row.why}` : row.meaning)],
    ], rows, (row) => (row.part_of ? 'part' : '')));
  };

  const drawCache = (made) => {
    const rows = data.cache.flatMap((directory) => directory.rows);
    const left = Math.min(220, made.getWidth() * 0.4);
    const drawn = rows.filter((row) => row.cached !== null).sort((a, b) => b.cached - a.cached).slice(0, 12).reverse();
    made.setOption({
      animation: false,
      aria: { enabled: true, decal: { show: state.patterns } },
      grid: { left, right: 24, top: 8, bottom: 28 },
      tooltip: tip((point) => [tipLine(drawn[point.dataIndex].path, bytes(point.value))]),
      xAxis: { type: 'value', ...axis(), ...byteAxis(Math.max(1, ...drawn.map((row) => row.cached)), made.getWidth() / 160), axisLabel: { ...axis().axisLabel, formatter: bytes } },
      yAxis: { type: 'category', ...axis(), data: drawn.map((row) => row.path), axisLabel: { ...axis().axisLabel, width: left - 20, overflow: 'truncate' } },
      series: [{ type: 'bar', name: 'cached', color: COLOURS[theme()][5], data: drawn.map((row) => row.cached) }],
    }, { notMerge: true });
    const size = (name) => (row) => (row[name] === null ? '-' : bytes(row[name]));
    query('cache', '.rows').replaceChildren(table([
      ['Directory', (row) => row.path], ['Cached', size('cached'), true], ['Dirty', size('dirty'), true], ['Size', size('size'), true],
      ['Files', (row) => row.files, true], ['Missing', (row) => row.missing, true],
    ], rows));
  };

  const KINDS = { oom: 'Out of memory', boot: 'Boot', restart: 'Restart', disk: 'Full disk', forks: 'Forks', gap: 'Gap' };
  const drawRows = () => {
    const mine = (row) => state.focus === null || (row[state.by] !== undefined && isShown(row[state.by]));
    query('incidents', '.rows').replaceChildren(table(
      [['Time', (row) => clock(row.ms) + (row.times && row.times.length > 1 ? ` to ${clock(row.times[row.times.length - 1])}` : '')], ['What', (row) => KINDS[row.kind]], ['About', (row) => row.text]],
      data.incidents.filter(mine), (row) => row.kind,
    ));
    if (data.ended) {
      query('ended', '.rows').replaceChildren(table([
        ['Unit', (row) => (row.unit === null ? '(none)' : row.unit)], ['Program', (row) => (row.program === null ? 'others' : row.program)],
        ['Began', (row) => row.forks, true], ['Executed', (row) => row.execs, true], ['Ended', (row) => row.ended, true],
        ['In no sample', (row) => row.unseen, true], ['Failed', (row) => row.failed, true],
        ['Processor time', (row) => (row.runtime_ns === null ? '-' : seconds(row.runtime_ns)), true],
        ['Largest', (row) => (row.peak === null ? '-' : bytes(row.peak)), true],
      ], data.ended.filter(mine)));
    }
    const place = data.groupings.findIndex((one) => one.by === state.by);
    const largest = data.present.processes.filter((row) => isShown(row.groups[place])).slice(0, 40);
    // Groups that no process is in need no column.
    const isIn = (index) => largest.some((row) => row.groups[index] !== null);
    const group = (one, index) => [one.by[0].toUpperCase() + one.by.slice(1), (row) => (row.groups[index] === null ? '(none)' : row.groups[index] === false ? 'not known' : row.groups[index]), 'minor'];
    query('largest', '.rows').replaceChildren(table([
      ['PID', (row) => row.pid, true], ['Name', (row) => row.comm],
      [data.present.memory.toUpperCase(), (row) => `${bytes(row.bytes)}${row.is_resident ? ' RSS' : ''}`, true],
      ['Processor time', (row) => (row.used_ns === null ? '-' : seconds(row.used_ns)), true],
      ['User', (row) => row.user], ...data.groupings.map(group).filter((_, index) => isIn(index)),
    ], largest));
  };

  const drawNumbers = () => Object.entries(data.commands).forEach(([id, commands]) => numbers(id, commands));

  const texts = () => {
    const what = (id, text) => { query(id, '.what').textContent = text; };
    const of = (memory) => memory === 'pss'
      ? 'Proportional sizes (PSS): a page that several processes have mapped is divided among them, so that the sizes add up.'
      : 'Resident sizes (RSS): a page that several processes have mapped counts for each of them, so the sizes add up to more than there is.';
    get('about').textContent = data.about;
    get('notes').replaceChildren(...data.notes.map((note) => element('li', note)));
    what('processor', 'Processors that groups of processes kept busy, on average since the previous point. Click on an area or a name to see it alone; drag in the bar below the chart, or turn the wheel with Ctrl, to zoom.');
    what('memory', `${of(data.memory)} The dashed line is the memory that is not available (MemTotal minus MemAvailable).`);
    what('disk', 'Bytes that groups of processes read from and wrote to disks, per second since the previous point. What is written to files counts when it is written to the page cache. What a process did after its last sample counts for the parent that waited for it.');
    what('network', 'Bytes that groups of processes received from and sent to other machines, per second since the previous point: payload, TCP, UDP and all else that goes through sockets.');
    what('incidents', data.times.length > 0 && data.incidents.length === 0 ? 'No kill for lack of memory, no full disk, no burst of forks and no restart was found.' : data.incidents_text);
    what('present', `${clock(data.present.ms)}. ${of(data.present.memory)}${data.present.missing}`);
    what('cache', 'The current page cache of the files below each directory, in whole pages.');
    what('ended', data.ended_text);
    what('largest', `The processes with the most memory at ${clock(data.present.ms)}.`);
  };

  const radio = (id, options, chosen, act) => options.forEach(([value, text]) => {
    const label = element('label');
    const input = element('input');
    Object.assign(input, { type: 'radio', name: id, value, checked: value === chosen });
    input.addEventListener('change', () => act(value));
    label.append(input, ` ${text}`);
    get(id).append(label);
  });

  let drawn = {};
  const draw = () => {
    root.dataset.theme = theme();
    drawLegend();
    if (drawn.processor) {
      drawOverTime(drawn.processor, 'processors', processors, { name: 'unknown, and interrupts', colour: NOT_THERE[theme()], values: grouping().unattributed }, null);
      if (drawn.disk) drawOverTime(drawn.disk, 'disk', rate, null, null);
      if (drawn.network) drawOverTime(drawn.network, 'network', rate, null, null);
      drawOverTime(drawn.memory, 'memory', bytes, null, data.used.some(isKnown) ? { name: 'not available', values: data.used } : null);
    }
    drawTreemap(drawn.present);
    if (drawn.cache) drawCache(drawn.cache);
    drawAccount();
    drawRows();
    drawNumbers();
  };

  const begin = () => {
    const hasTimes = data.times.length > 0;
    const hasAny = (kind) => grouping()[kind].some((values) => values.some((value) => value > 0));
    const isThere = { processor: hasTimes, memory: hasTimes, disk: hasTimes && hasAny('disk'), network: hasTimes && hasAny('network'), incidents: hasTimes || data.incidents.length > 0 };
    Object.entries(isThere).forEach(([id, there]) => { get(id).hidden = !there; });
    get('cache').hidden = data.cache.length === 0;
    get('ended').hidden = !data.ended;
    if (hasTimes) {
      ['processor', 'memory', 'disk', 'network'].filter((id) => isThere[id]).forEach((id) => {
        drawn[id] = chart(id);
        drawn[id].group = 'time';
        takeMoment(drawn[id]);
      });
      echarts.connect('time');
    }
    drawn.present = chart('present');
    if (data.cache.length > 0) drawn.cache = chart('cache');
    radio('by', data.groupings.map((one) => [one.by, one.by]), state.by, (by) => { state.by = by; state.focus = null; draw(); });
    radio('theme', [['auto', 'of the system'], ['light', 'light'], ['dark', 'dark']], 'auto', (chosen) => { state.theme = chosen; draw(); });
    get('patterns').addEventListener('change', (event) => { state.patterns = event.target.checked; draw(); });
    get('all').addEventListener('click', () => { state.focus = null; draw(); });
    isDark.addEventListener('change', draw);
    addEventListener('resize', () => { charts.forEach((made) => made.resize()); if (drawn.cache) drawCache(drawn.cache); });
    const print = (isPrinted) => { state.isPrinted = isPrinted; draw(); charts.forEach((made) => made.resize()); };
    matchMedia('print').addEventListener('change', (event) => print(event.matches));
    texts();
    draw();
    // For tests: the time to draw everything.
    root.dataset.drawn = String(Math.round(performance.now()));
  };
  begin();
})();
