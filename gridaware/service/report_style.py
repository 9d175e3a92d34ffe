"""The look of report pages. Okabe and Ito's colours; contrast of text at least 4.5 to 1."""

from typing import Final

__all__ = ["STYLE"]

STYLE: Final = """
:root{--paper:#fff;--card:#f6f7f9;--ink:#1b2430;--soft:#56616f;--line:#d9dee5;--grid:#e4e8ed;
--measured:#0072b2;--target:#d55e00;--baseline:#56616f;--window:#eef3f8;--deadline:#56616f;
--good:#00694d;--good-bg:#dff3ec;--short:#98370a;--short-bg:#fdeadf;--note:#5c4700;
--note-bg:#fff5d6}
@media (prefers-color-scheme:dark){:root{--paper:#12171e;--card:#1b222c;--ink:#e8ecf1;
--soft:#a5b0bd;--line:#313b48;--grid:#2a333f;--measured:#56b4e9;--target:#f0934a;--baseline:#a5b0bd;
--window:#1d2733;--deadline:#a5b0bd;--good:#6fdcb8;--good-bg:#12362c;--short:#ffb58a;
--short-bg:#43210f;--note:#f3dc8c;--note-bg:#3a300d}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);line-height:1.5;
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;
font-variant-numeric:tabular-nums}
header,main,footer{max-width:68rem;margin:0 auto;padding:0 1.5rem}
header{padding-top:3rem}
.eyebrow{margin:0;color:var(--soft);font-size:.8rem;font-weight:600;letter-spacing:.09em;
text-transform:uppercase}
h1{margin:.1rem 0 .7rem;font-size:2.1rem;line-height:1.15;letter-spacing:-.015em;
overflow-wrap:anywhere}
h2{margin:0 0 .9rem;font-size:1.2rem;letter-spacing:-.005em}
.lead{max-width:46rem;margin:.9rem 0 0;font-size:1.1rem;color:var(--ink)}
.chips{display:flex;flex-wrap:wrap;gap:.45rem;margin:0}
.chip{padding:.15rem .7rem;border:1px solid var(--line);border-radius:1rem;font-size:.85rem;
color:var(--soft);overflow-wrap:anywhere}
.chip.good{background:var(--good-bg);border-color:transparent;color:var(--good);font-weight:600}
.chip.short{background:var(--short-bg);border-color:transparent;color:var(--short);font-weight:600}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.6rem,1fr));gap:.75rem;
margin:2rem 0 0;padding:0;list-style:none}
.tiles li{display:flex;flex-direction:column;padding:.9rem 1rem;border-radius:.6rem;
background:var(--card)}
.label{color:var(--soft);font-size:.85rem;font-weight:500}
.tiles strong{margin:.1rem 0 .15rem;font-size:1.55rem;line-height:1.2;font-weight:650;
letter-spacing:-.01em}
.note,.fine{color:var(--soft);font-size:.85rem;line-height:1.4}
section{margin:2.6rem 0 0}
figure{margin:0}
.wide{overflow-x:auto}
svg.power{display:block;width:100%;min-width:36rem;height:auto;font-family:inherit}
figcaption{margin-top:.5rem;color:var(--soft);font-size:.85rem}
.clocks{display:grid;grid-template-columns:repeat(auto-fit,minmax(11rem,1fr));gap:0;margin:0;
padding:0;list-style:none}
.clocks li{position:relative;display:flex;flex-direction:column;padding:1.1rem 1rem 0 0}
.clocks li::before{content:"";position:absolute;top:.3rem;left:0;right:0;height:2px;
background:var(--line)}
.clocks li::after{content:"";position:absolute;top:0;left:0;width:.7rem;height:.7rem;
border-radius:50%;background:var(--measured);box-shadow:0 0 0 3px var(--paper)}
.clocks li.open::after{background:var(--paper);border:2px solid var(--soft)}
.clocks li:last-child::before{display:none}
.clocks strong{font-size:1.25rem;font-weight:650}
.clocks .label{color:var(--ink)}
.bar{display:flex;height:1.6rem;gap:2px;border-radius:.35rem;overflow:hidden}
.part{min-width:2px}
.keys{display:flex;flex-wrap:wrap;gap:.3rem 1.2rem;margin:.7rem 0 1.1rem;padding:0;list-style:none;
font-size:.9rem}
.swatch{display:inline-block;width:.75rem;height:.75rem;margin-right:.4rem;border-radius:.15rem}
.job{background:#0072b2}.held_idle{background:#56b4e9}.unallocated{background:#8c96a3}
.unmanaged{background:#cc79a7}.overhead{background:#e69f00}.unexplained{background:#d55e00}
.scroll{overflow-x:auto;border:1px solid var(--line);border-radius:.6rem}
.scroll:focus-visible,.wide:focus-visible,summary:focus-visible{
outline:3px solid var(--measured);outline-offset:2px}
table{width:100%;border-collapse:collapse;font-size:.86rem}
th,td{padding:.5rem .65rem;text-align:left;white-space:nowrap}
thead th{border-bottom:1px solid var(--line);background:var(--card);color:var(--soft);
font-weight:600}
tbody tr+tr td{border-top:1px solid var(--grid)}
.right{text-align:right}
.scroll+.fine{margin:.5rem 0 0}
details{margin-top:1.2rem}
summary{min-height:44px;display:list-item;padding:.6rem 0;cursor:pointer;font-weight:600}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.35rem 1.4rem;margin:0 0 1.2rem}
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
.warnings{margin:1.6rem 0 0;padding:.8rem 1.1rem;border-radius:.6rem;background:var(--note-bg);
color:var(--note)}
.warnings ul{margin:0;padding-left:1.1rem}
footer{padding-top:3rem;padding-bottom:3rem;color:var(--soft);font-size:.85rem}
@media (max-width:40rem){dl{grid-template-columns:1fr;gap:0}dd{margin-bottom:.6rem}
header{padding-top:1.6rem}}
@media print{body{font-size:11px}section,figure,.tiles li{break-inside:avoid}
header,main,footer{max-width:none;padding:0}}
""".strip()
