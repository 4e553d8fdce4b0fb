"""The style of the report page, for dark and light screens. Data only; used by `report`.

Hues follow Okabe and Ito, whose colours colour-blind readers can tell apart.
"""

from typing import Final

STYLE: Final = """
:root{color-scheme:light dark;--bg:#fbfbfa;--card:#fff;--ink:#1d2126;--soft:#5c6670;--line:#e2e4e7;
--rest:#d9dde1;--good:#0a7d55;--bad:#c0392b;--goodbg:#e7f5ef;--badbg:#fdecea;
--stage:#3a86c8;--decide:#e69f00;--recover:#7d5fb2;
--apply0:#009e73;--apply1:#d0709c;--apply2:#7a8b3a;--apply3:#b8a13a;--apply4:#8c6d5a;--apply5:#6a8f3c}
@media(prefers-color-scheme:dark){:root{--bg:#14171a;--card:#1c2024;--ink:#e7e9eb;--soft:#9aa4ad;
--line:#2e343a;--rest:#3a4148;--good:#4cc38a;--bad:#ff7a6b;--goodbg:#12291f;--badbg:#331a18;
--stage:#5aa2e0;--decide:#f0b429;--recover:#a78bdb;--apply0:#2cb98e;--apply1:#e08ab2;--apply2:#a5b75a}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);
font:15px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1120px;margin:0 auto;padding:28px 24px 64px}
header{border-radius:12px;padding:22px 26px;border-left:6px solid}
header.good{background:var(--goodbg);border-color:var(--good)}
header.bad{background:var(--badbg);border-color:var(--bad)}
h1{margin:0;font-size:34px;line-height:1.2}header.good h1{color:var(--good)}header.bad h1{color:var(--bad)}
header p{margin:6px 0 0}h2{font-size:19px;margin:0 0 4px}h3{margin:14px 0 2px;color:var(--bad)}
section{margin-top:34px}section>p{margin:0 0 12px;color:var(--soft);max-width:82ch}
.cards{display:flex;flex-wrap:wrap;gap:12px;margin-top:16px}
.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:10px 18px;min-width:120px}
.card b{display:block;font-size:21px;font-variant-numeric:tabular-nums}
.card span{color:var(--soft);font-size:13px}
.scroll{overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:10px}
table{border-collapse:collapse;width:100%}
th{font-size:13px;color:var(--soft);font-weight:600}
th,td{text-align:left;padding:8px 14px;vertical-align:top}
tbody tr+tr td,thead+tbody td{border-top:1px solid var(--line)}
.num{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap;width:1%}
tr.step td:first-child{padding-left:38px}
tr.step td{padding-top:3px;padding-bottom:3px;color:var(--soft);border-top:0!important}
code{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}small{color:var(--soft)}
strong.bad{color:var(--bad)}
.legend{list-style:none;margin:8px 0 0;padding:0;display:grid;gap:5px;color:var(--soft)}
.legend b{color:var(--ink);font-weight:600;margin-right:4px}
.key{display:inline-block;width:14px;height:14px;border-radius:4px;margin-right:9px;vertical-align:-2px}
.key.none{background:none}.key.kill{width:3px;border-radius:0;margin:0 14px 0 6px;background:var(--bad)}
.stage{background:var(--stage)}.decide{background:var(--decide)}.recover{background:var(--recover)}
.apply0{background:var(--apply0)}.apply1{background:var(--apply1)}.apply2{background:var(--apply2)}
.apply3{background:var(--apply3)}.apply4{background:var(--apply4)}.apply5{background:var(--apply5)}
.rest{background:var(--rest)}
.bar{position:absolute;top:0;bottom:0;min-width:2px;border-radius:3px}
.bar.decide{min-width:4px;z-index:2}
.bar:hover{outline:2px solid var(--ink);z-index:3}
.strip{position:relative;height:44px;background:var(--card);border:1px solid var(--line);
border-radius:8px;margin-top:22px}
.strip .bar{top:6px;bottom:6px;background:var(--stage)}
.strip .killed,.strip .failed{background:var(--soft);opacity:.65}
.strip .replayed{background:repeating-linear-gradient(135deg,var(--apply0) 0 5px,var(--rest) 5px 10px)}
.ticks{position:relative;height:22px;color:var(--soft);font-size:12px}
.ticks span{position:absolute;white-space:nowrap;transform:translateX(-50%);padding-top:3px}
.ticks span:first-child{transform:none}.ticks span:last-child{transform:translateX(-100%)}
.mark{position:absolute;top:-4px;bottom:-4px;width:3px;margin-left:-1px;background:var(--bad);z-index:4}
.mark b{position:absolute;left:50%;top:-17px;transform:translateX(-50%);min-width:17px;height:17px;
border-radius:9px;background:var(--bad);color:var(--bg);
font:700 11px/17px system-ui,sans-serif;text-align:center}
.epochs{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:8px 14px}
.row{display:grid;grid-template-columns:104px 1fr 74px;gap:12px;align-items:center;padding:2px 0}
.row .name{text-align:right;font-variant-numeric:tabular-nums;font-size:13px}
.row em{font-style:normal;font-size:11px;padding:1px 6px;border-radius:8px;margin-right:7px;
border:1px solid;color:var(--good)}
.row.killed em,.row.failed em{color:var(--bad)}
.lane{position:relative;height:16px}.lane .rest{opacity:.55}.lane .mark b{top:0;left:14px}
.over{position:absolute;right:-11px;top:-4px;color:var(--soft)}
.took{color:var(--soft);font-size:12px;text-align:right;font-variant-numeric:tabular-nums}
"""
