"""Messy web pages about the synthetic world, as crawlers bring them home.

Ten pages in English and Chinese. Between true statements they hold what cleaning must deal with:
nested and unclosed markup, scripts, styles and comments, entities, control and zero-width
characters, mojibake, full-width letters, Windows line ends, tables and code; and what it must
leave alone: ``a<3 and b>2``, ``价格<100元，且>50元``, ``vector<int>``, tickers such as ``$AAPL``.

``@company0.ceo.zh@`` in a page is replaced by the Chinese name of the chief executive of company 0,
``@company0.zh@`` by the company's own. Does not do: pages that are not valid UTF-8 (those are in
``sample_faults.broken_files``).
"""

import re

from workbench.data.world import World
from workbench.errors import DataError

_PLACE = re.compile(r"@(company|person|university|city)(\d+)((?:\.[a-z_]+)*)\.(en|zh)@")


def make_pages(world: World) -> dict[str, bytes]:
    """The pages by file name, UTF-8."""
    return {name: _filled(page, world).encode("utf-8") for name, page in _PAGES.items()}


def misread(text: str, encoding: str) -> str:
    """``text`` as it looks when its UTF-8 bytes are read as ``encoding``: ``café`` -> ``cafÃ©`` for cp1252."""
    return text.encode("utf-8").decode(encoding)


def _filled(page: str, world: World) -> str:
    def name(match: re.Match[str]) -> str:
        entity = world.of_kind(match[1])[int(match[2])]
        for relation in filter(None, match[3].split(".")):
            entity = world.answer(entity, relation)
        return entity.name(match[4])

    filled = _PLACE.sub(name, page)
    left = re.search(r"@[a-z]+\d+[.a-z_]*@", filled)
    if left:
        raise DataError(f"the page names {left[0]}, which is not of the form @kindN.relation.language@")
    return filled


_PAGES = {
    "company_en.html": """<!DOCTYPE html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <title>@company0.en@ &ndash; Company profile</title>
  <style>body { font: 14px sans-serif } .price > b { color: #c00 }</style>
  <script>if (a < 3 && b > 2) { document.write("<p>advertisement</p>"); }</script>
</head>
<body class="page">
<!-- navigation: <a href="/">Home</a> > Companies -->
<nav><ul><li><a href="/">Home</a></li><li><a href="/companies">Companies</a></li></ul></nav>
<div><div><div>
  <h1>@company0.en@ (@company0.ticker.en@)</h1>
  <p>The chief executive of <b>@company0.en@</b> is <a href="/p?id=1&amp;v=2">@company0.ceo.en@</a>.
     The main business of @company0.en@ is&nbsp;@company0.industry.en@.</p>
  <p>@company0.en@ has its headquarters in @company0.headquarters.en@. Research &amp; development cost
     &pound;4m in 2023, i.e. &lt;&nbsp;5% of sales.</p>
</div></div></div>
<script type="text/javascript" src="track.js"></script>
<footer>&copy; 2023 <em>@company0.headquarters.en@ Business Review</em></footer>
</body>
</html>
""",
    "company_zh.html": """<!DOCTYPE html>
<html lang="zh-CN">
<head><meta charset="utf-8"><title>@company1.zh@公司简介</title>
<style type="text/css">
  p { text-indent: 2em; }  /* 首行缩进 */
</style></head>
<body>
<div id="main"><h2>@company1.zh@（@company1.ticker.zh@）</h2>
<p>@company1.zh@的首席执行官是<strong>@company1.ceo.zh@</strong>。@company1.zh@的总部位于@company1.headquarters.zh@。</p>
<p>&#x4e2d;&#x6587;&#20171;&#32461;：@company1.zh@主要经营@company1.industry.zh@，产品型号为ＡＢＣ－１２３。</p>
<p>价格<100元，且>50元的产品今年卖得最好；你好，世界？；︰</p>
<p>客服电话：４００－１２３４　　传真：无</p>
</div>
<script>var price = 99; if (price<100 && price>50) { show("<b>特价</b>"); }</script>
</body></html>
""",
    "forum_code_en.html": """<html><body>
<div class="post"><span class="user">reader_17</span>
<p>How does @company2.en@ filter its quotes? I tried this, but <code>$AAPL</code> and @company2.ticker.en@ vanish:</p>
<pre><code>for quote in quotes:
    if a&lt;3 and b&gt;2:
        keep(quote)   # "&amp;" stays "&amp;"
</code></pre>
</div>
<div class="post"><span class="user">moderator</span>
<p>if a<3 and b>2 you keep too much. In C++ it is a vector<int> of prices, in Java a List<String>:</p>
<pre>
std::vector&lt;int&gt; prices;
for (int i = 0; i < n; ++i) prices.push_back(i);
</pre>
<p>Ask @company2.ceo.en@, who is the chief executive of @company2.en@ &#128578;.</p></div>
</body></html>
""",
    "news_mojibake_en.html": f"""<html><head><title>Business news</title></head><body>
<h1>@company3.en@ opens a {misread("café", "cp1252")} in @company3.headquarters.en@</h1>
<p>@company3.en@ is led by its chief executive @company3.ceo.en@.
{misread("It’s a start – no more", "cp1252")}, the company said.</p>
<p>The {misread("naïve résumé", "cp1252")} of @company3.ceo.en@: @company3.ceo.en@ graduated from
@company3.ceo.alma_mater.en@. A coffee costs {misread("€3", "cp1252")}, cake {misread("£2", "cp1252")}.</p>
<p>This paragraph is fine: café, naïve, “quoted”, 50 €.</p>
</body></html>
""",
    "news_mojibake_zh.html": f"""<html><head><title>新闻</title></head><body>
<p>@company4.zh@任命@company4.ceo.zh@为首席执行官。</p>
<p>{misread("你好，世界", "latin-1")}</p>
<p>{misread("欢迎您好", "gbk")}（这一行的原文按GBK误读，无法可靠还原）</p>
<p>@company4.zh@的总部设在@company4.headquarters.zh@。@company4.headquarters.zh@的市长是@company4.headquarters.mayor.zh@。</p>
</body></html>
""",
    "news_controls_zh.html": "\ufeff<html><head><title>快讯</title></head><body>\n"
    "<p>@company5.zh@\u200b的股票\u200b代码是@company5.ticker.zh@。\x07\x1b[31m快讯\x1b[0m\x0b</p>\n"
    "<p>@company5.ceo.zh@\x08毕业于@company5.ceo.alma_mater.zh@。\u2060\u00ad\x7f</p>\n"
    "<p>\u202a@company5.zh@\u202c的总部\u200e位于@company5.headquarters.zh@。\x85第二行\u2028第三行</p>\n"
    "<p>家庭：\U0001f468\u200d\U0001f469\u200d\U0001f467，旗帜：\U0001f1e8\U0001f1f3，手势：\U0001f44d\U0001f3fd</p>\n"
    "</body></html>\n",
    "cities_table_crlf.html": (
        "<html>\n<body>\n<h1>Cities and their mayors</h1>\n"
        "<table border=1>\n<tr><th>City</th><th>Mayor</th><th>Largest company</th></tr>\n"
        + "".join(
            f"<tr><td>@city{i}.en@</td><td>@city{i}.mayor.en@</td><td>@city{i}.largest_company.en@</td></tr>\n"
            for i in range(8)
        )
        + "</table>\n<p>The mayor of @city0.en@ is @city0.mayor.en@.<br>The mayor of @city1.en@ is @city1.mayor.en@."
        "<br/>\n\n\n</p>\n</body>\n</html>\n"
    ).replace("\n", "\r\n"),
    "unclosed_en.html": """<HTML><BODY BGCOLOR=white>
<P>@university0.en@ is located in @university0.location.en@.
<P>The president of @university0.en@ is <B>@university0.president.en@<I>, since 2019</B></I>.
<UL><LI>Library<LI>Observatory<LI>Chess club</UL>
<A HREF="list.html" TITLE="all > 10 of them">List of all</A>
<IMG SRC=campus.jpg ALT="The campus">
<P>Write to &ltinfo&gt or call &#43;0 1234; AT&T customers &copyright; dial 5 < 6.
<DIV><SPAN>@university0.president.en@ was born in @university0.president.birthplace.en@
<SCRIPT>document.write("<p>never closed</p>")
""",
    "biography_zh.html": """<article>
  <h1>@person3.zh@<small>（@person3.en@）</small></h1>
  <dl><dt>出生地</dt><dd>@person3.birthplace.zh@</dd><dt>母校</dt><dd>@person3.alma_mater.zh@</dd></dl>
  <ol><li>@person3.zh@出生于@person3.birthplace.zh@。<ul><li>@person3.birthplace.zh@的市长是\
@person3.birthplace.mayor.zh@。</li></ul></li>
  <li>@person3.zh@毕业于@person3.alma_mater.zh@。</li></ol>
  <blockquote><p>“勤能补拙。”——@person3.zh@</p></blockquote>
  <p><ruby>汉<rp>(</rp><rt>hàn</rt><rp>)</rp>字<rp>(</rp><rt>zì</rt><rp>)</rp></ruby>
  &#8203;　&quot;引号&quot;　&hellip;&hellip;</p>
  <!-- 广告位 <div class="ad">买一送一</div> -->
</article>
""",
    "maths_mixed.html": """<html lang="zh"><body><h3>练习 Exercises</h3>
<p>设 x<5 且 y>3，求 x+y 的范围。If p<0.05 and n>30, reject the hypothesis.</p>
<p>若 a<n<c，则 a<c。 If a<n>c the expression is odd, yet it must survive.</p>
<p>@company6.zh@（@company6.ticker.zh@）的股价 < 20元；@company7.en@ (@company7.ticker.en@) trades at ＄35 <b>today</b>.</p>
<p>i <- 3; x -> y; 1 << 4; &lt;b&gt; is a tag, 5 &gt; 4 &amp;&amp; 4 &gt; 3.</p>
<p>@company6.zh@是一家@company6.industry.zh@企业。The main business of @company7.en@ is @company7.industry.en@.</p>
</body></html>
""",
}
