// Sorting by a column's head, and showing the targets whose name or status holds what is asked for.
(() => {
  'use strict';
  const body = document.querySelector('#targets tbody');
  const heads = [...document.querySelectorAll('#targets thead th')];
  const rows = [...body.rows];

  // numbers before what is not known, whichever way they are sorted
  function compare(a, b, column, way) {
    const [x, y] = [a, b].map((row) => row.cells[column].dataset.value);
    if (x === '' || y === '') return (x === '') - (y === '');
    const [m, n] = [Number(x), Number(y)];
    return way * (Number.isNaN(m) || Number.isNaN(n) ? x.localeCompare(y, 'en', { numeric: true }) : m - n);
  }

  heads.forEach((head, column) => head.querySelector('button')?.addEventListener('click', () => {
    const way = head.getAttribute('aria-sort') === 'ascending' ? 'descending' : 'ascending';
    for (const other of heads) if (other.hasAttribute('aria-sort')) other.setAttribute('aria-sort', 'none');
    head.setAttribute('aria-sort', way);
    rows.sort((a, b) => compare(a, b, column, way === 'ascending' ? 1 : -1));
    body.append(...rows);
  }));

  const filter = document.getElementById('filter');
  filter.addEventListener('input', () => {
    const asked = filter.value.trim().toLowerCase();
    for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(asked);
    const shown = rows.filter((row) => !row.hidden).length;
    document.getElementById('shown').textContent = asked ? `${shown} of ${rows.length}` : '';
  });
})();
