"""The report's stylesheet: what it adds to the common style."""

from __future__ import annotations

from fourier_head.pages.style import css, schemes


def page_css() -> str:
    """Return the stylesheet: the common one, the reader's own choice of scheme, and the report's layout."""
    light, dark = schemes()
    chosen = (
        f":root[data-scheme=light]{{color-scheme:light;{light}}}:root[data-scheme=dark]{{color-scheme:dark;{dark}}}"
    )
    return css() + chosen + _CSS


_CSS = """
html{scroll-behavior:smooth;scroll-padding-top:1.5rem}
@media (prefers-reduced-motion:reduce){html{scroll-behavior:auto}}
.frame{display:grid;grid-template-columns:13rem minmax(0,1fr);max-width:86rem;margin:0 auto}
nav{position:sticky;top:0;height:100vh;padding:3.7rem 0 2rem 1.8rem;display:flex;flex-direction:column;font-size:.9rem}
nav div{display:flex;flex-direction:column;gap:.1rem;overflow:auto;flex:1}
nav a{color:var(--muted);text-decoration:none;padding:.28rem .8rem;border-left:2px solid var(--line);white-space:nowrap}
nav a:hover{color:var(--ink)}
nav a[aria-current]{color:var(--ink);border-left-color:var(--curve-1);font-weight:600}
button{font:inherit;font-size:.84rem;color:var(--muted);background:none;border:1px solid var(--line);border-radius:6px;
padding:.25rem .6rem;cursor:pointer}
button:hover{color:var(--ink)}
nav button{align-self:flex-start}
main{margin:0;max-width:none;padding-top:3.4rem}
section{margin-bottom:5rem}
section:first-child h1{margin-top:0}
section>h2{font-size:1.5rem;letter-spacing:-.015em;margin:0 0 .6rem;padding-top:.4rem}
#overview>h2{font-size:1.15rem;margin-top:2.2rem}
h3{font-size:1rem;font-weight:650;margin:2.4rem 0 .3rem}
h4{font-size:.86rem;font-weight:600;margin:0 0 .1rem}
.notes{padding-left:1.1rem}
.notes li{margin:.5rem 0}
.panels{display:grid;grid-template-columns:repeat(var(--columns,1),minmax(0,1fr));gap:1.2rem 1.6rem;margin-top:.7rem}
.panel{min-width:0}
.panel svg{touch-action:pan-y}
.ylabel{font-size:.74rem;color:var(--muted);margin:0;max-width:none}
.panel svg text{font-family:var(--sans);fill:var(--muted)}
.tick,.label,.note{font-size:11.5px}
.note{font-size:11px}
.grid{stroke:var(--line);stroke-width:1}
.axis{stroke:var(--muted);stroke-width:1;fill:none}
.mark{stroke:var(--muted);stroke-width:1;stroke-dasharray:2 3;fill:none}
.curve{fill:none;stroke-width:2;stroke-linejoin:round}
.error{fill:none;stroke-width:1.2}
.hover{pointer-events:none}
.legend{display:flex;flex-wrap:wrap;gap:.35rem .5rem;margin:.5rem 0 0}
.legend:empty{display:none}
.legend button{display:inline-flex;align-items:center;gap:.45rem;color:var(--ink);padding:.15rem .55rem}
.legend button svg{width:24px;height:10px;flex:none}
.legend button[aria-pressed=false]{opacity:.42;text-decoration:line-through}
#tip{position:fixed;z-index:9;pointer-events:none;max-width:min(22rem,92vw);padding:.4rem .6rem;
font-size:.8rem;line-height:1.4;background:var(--paper);border:1px solid var(--muted);border-radius:6px;
box-shadow:0 3px 14px rgb(0 0 0/.18)}
#tip .chip{width:.6em;height:.6em;margin-right:.4em}
td{vertical-align:top}
table.slim{width:auto;min-width:22rem}
tbody th{white-space:normal;min-width:9rem;max-width:24rem;vertical-align:top;line-height:1.4}
td .theirs{display:block;color:var(--muted);font-size:.82rem}
td .theirs i{font-style:normal;opacity:.85;margin-left:.35em}
td.none{color:var(--line)}
details{margin:1rem 0}
details.table{margin:.3rem 0;border-top:1px solid var(--line);padding-top:.3rem}
details.table summary{color:var(--ink);font-weight:600}
summary span{color:var(--muted);font-weight:400;margin-left:.4rem}
section>h4,details h4{margin-top:1.4rem}
h4+.scroll{margin-top:.2rem}
summary{cursor:pointer;color:var(--muted);font-size:.9rem}
summary:hover{color:var(--ink)}
.ratios{margin:1rem 0 .6rem}
.ratio{display:grid;grid-template-columns:15rem minmax(0,1fr) 6rem;gap:0 1.4rem;align-items:center;font-size:.88rem;
min-height:1.9rem;border-bottom:1px solid var(--line)}
.ratio a{color:inherit;font-weight:600;text-decoration:none}
.ratio a:hover{text-decoration:underline}
.ratio.scale{color:var(--muted);font-size:.78rem;min-height:1.5rem}
.track{position:relative;height:100%;min-height:1.4rem;margin:0 .4rem;
background:linear-gradient(var(--line),var(--line)) 50% 0/1px 100% no-repeat}
.scale .track{background:none}
.track i{position:absolute;transform:translateX(-50%);font-style:normal;white-space:nowrap}
.dot{position:absolute;top:50%;width:.66rem;height:.66rem;margin:-.33rem;border-radius:50%;
background:var(--curve-1);opacity:.72}
.dot.far{background:var(--curve-2)}
.dot.better{background:var(--curve-3)}
.key::before{content:"";display:inline-block;width:.6rem;height:.6rem;margin-right:.3rem;border-radius:50%;
background:var(--curve-1)}
.key.far::before{background:var(--curve-2)}
.key.better::before{background:var(--curve-3)}
.dot.over,.dot.under{border-radius:0;clip-path:polygon(0 0,100% 50%,0 100%)}
.dot.under{clip-path:polygon(100% 0,0 50%,100% 100%)}
.dot:hover,.dot:focus{opacity:1;outline:2px solid var(--ink);outline-offset:1px}
.count{text-align:right;color:var(--muted);white-space:nowrap}
footer code{white-space:nowrap}
@media (max-width:64rem){
html{scroll-padding-top:3.6rem}
.frame{display:block}
nav{height:auto;padding:.45rem 1.1rem;flex-direction:row;align-items:center;gap:.8rem;background:var(--paper);z-index:5;
border-bottom:1px solid var(--line)}
nav div{flex-direction:row;overflow-x:auto;scrollbar-width:none;position:relative}
nav a{border-left:0;border-bottom:2px solid transparent;padding:.3rem .55rem}
nav a[aria-current]{border-bottom-color:var(--curve-1)}
nav button{align-self:auto;white-space:nowrap;flex:none}
main{padding-top:1.8rem}
.panels{grid-template-columns:repeat(min(var(--columns,1),2),minmax(0,1fr))}
}
@media (max-width:46rem){
.panels{grid-template-columns:minmax(0,1fr)}
.ratio{grid-template-columns:minmax(0,1fr) 4rem;padding:.35rem 0}
.ratio .track{grid-row:2;grid-column:1/3;height:1.3rem}
.ratio.scale span:first-child{display:none}
.ratio.scale .track{grid-row:1;grid-column:1/3}
.ratio.scale .count{display:none}
table{font-size:.86rem}
tbody th{min-width:7.5rem;max-width:11rem}
section>h2{font-size:1.3rem}
}
@media print{nav,.legend{display:none}.frame{display:block}details{display:block}}
"""
