// Opens what a link points to, and starts a player when its recording is opened. Runs in report.html.
/* global document, location, window, HTMLDetailsElement */
'use strict';
(() => {
  const reveal = () => {
    const target =
      location.hash.length > 1 ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null;
    if (target instanceof HTMLDetailsElement) {
      target.open = true;
      target.scrollIntoView();
    }
  };
  window.addEventListener('hashchange', reveal);
  reveal();
  const play = (details) => {
    const place = details.querySelector('.player');
    if (!details.open || place.childElementCount > 0) return;
    const cast = JSON.parse(details.querySelector('script').textContent);
    window.AsciinemaPlayer.create({ data: cast }, place, {
      fit: 'width',
      idleTimeLimit: 2,
      preload: true,
      // What the session came to is shown before it is played.
      poster: 'npt:9:59:59',
    });
  };
  for (const details of document.querySelectorAll('details.recording')) {
    details.addEventListener('toggle', () => play(details));
    play(details);
  }
})();
