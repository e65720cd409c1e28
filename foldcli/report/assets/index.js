// The index: sorting by a column, and filtering by text.
(() => {
  'use strict';
  const body = document.querySelector('#targets tbody');
  const headers = [...document.querySelectorAll('#targets thead th')];
  const rows = [...body.rows];

  // compare two rows; sign is 1 or -1, and unknown values are last in either direction
  function compare(a, b, column, sign) {
    const [x, y] = [a, b].map((row) => row.cells[column].dataset.value);
    if (x === '' || y === '') return (x === '') - (y === '');
    const [m, n] = [Number(x), Number(y)];
    return sign * (Number.isNaN(m) || Number.isNaN(n) ? x.localeCompare(y, 'en', { numeric: true }) : m - n);
  }

  headers.forEach((header, column) => header.querySelector('button')?.addEventListener('click', () => {
    const direction = header.getAttribute('aria-sort') === 'ascending' ? 'descending' : 'ascending';
    for (const other of headers) if (other.hasAttribute('aria-sort')) other.setAttribute('aria-sort', 'none');
    header.setAttribute('aria-sort', direction);
    rows.sort((a, b) => compare(a, b, column, direction === 'ascending' ? 1 : -1));
    body.append(...rows);
  }));

  const filter = document.getElementById('filter');
  filter.addEventListener('input', () => {
    const query = filter.value.trim().toLowerCase();
    for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(query);
    const shown = rows.filter((row) => !row.hidden).length;
    document.getElementById('shown').textContent = query ? `${shown} of ${rows.length}` : '';
  });
})();
