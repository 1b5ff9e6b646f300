"""Cleaning as a whole: what survives, what is repaired, and where each character came from."""

import random
from dataclasses import replace

import ftfy
import numpy as np
import pytest
from ftfy.badness import is_bad
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.data.cleaning import _SUSPECT, CleaningPolicy, clean, mojibake
from workbench.data.edits import apply
from workbench.data.html_tags import evidence
from workbench.errors import SettingError

QUICK = settings(deadline=None, max_examples=150, derandomize=True)
DEFAULT = CleaningPolicy()

# Every alphabet that the rules work on, so that they meet.
MIXED = st.text(
    "ab \n\r\t\0\x1f\x85\u2028é\u0301eÃ©â€™œ\x9dÂ\xa0"
    "，？“”Ａ１中文文發万里裏乾干豈\u200b\u200d\u200c\ufeff\u00adא\u202e👩🔬\ufe0f\ud800<>&;ｶﾞ½",
    max_size=30,
)
ANY = st.one_of(MIXED, st.text(max_size=30))
POLICIES = st.builds(
    CleaningPolicy,
    markup=st.sampled_from(["auto", "always", "never"]),
    mojibake=st.booleans(),
    line_ends=st.booleans(),
    control_characters=st.booleans(),
    zero_width=st.booleans(),
    fold_width=st.booleans(),
    fold_quotes=st.booleans(),
    chinese=st.sampled_from(["keep", "simplified", "traditional"]),
    unicode_form=st.sampled_from(["NFC", "NFKC", "none"]),
)

CHINESE = [
    "你好，世界？；︰",  # NFKC makes ASCII of these four
    "“引号”‘单’《书名》〈篇〉「直角」『双』【】（）［］｛｝、。！：；……——～·",
    "价格<100元，且>50元；if a<3 and b>2；ＡＢＣ１２３＄％",
    "春眠不觉晓，处处闻啼鸟。夜来风雨声，花落知多少。",
    "ā á ǎ à ē é ě è ī í ǐ ì ō ó ǒ ò ū ú ǔ ù ǖ ǘ ǚ ǜ：nǐ hǎo, lǜ sè, xīn nián kuài lè!",
    "３.１４×２＝６.２８，５℃±１，１０㎡，№５，①②③，Ⅷ，㈱，½，α≤β≥γ，√２≈１.４１４，∵∴∠",
    "繁體中文：體、臺、龍、鬱。𠮷野家，𪚥。〇一二三",
    "他说：“Café Ångström—naïve, Ça va? ¿Qué? „Ja“ «oui» 100 € £5 ¥6 §7 ©®™”。",
    "日本語のテキスト、カタカナ、ﾊﾝｶｸ。한국어 문장입니다.",
]


@pytest.mark.parametrize("text", CHINESE)
def test_chinese_comes_through_unchanged(text):
    done = clean(text)
    assert done.text == text and done.changes == () and not done.counts
    assert done.offsets.tolist() == list(range(len(text) + 1))


def test_a_hundred_thousand_chinese_characters_come_through_unchanged():
    rng = random.Random(20231024)
    han = [chr(c) for block in ((0x4E00, 0xA000), (0x3400, 0x4DC0), (0x20000, 0x20400)) for c in range(*block)]
    marks = "，。！？；：、“”‘’（）《》…—·～￥％ \n0123456789abcXYZáéüǎ"
    text = "".join(rng.choice(han) if rng.random() < 0.85 else rng.choice(marks) for _ in range(100_000))
    text = "\n".join(line.strip() for line in text.splitlines())
    for policy in (DEFAULT, CleaningPolicy(markup="never", unicode_form="none")):
        assert clean(text, policy).text == text


def test_nfkc_turns_chinese_punctuation_only_when_asked():
    assert clean("你好，世界？；", CleaningPolicy(unicode_form="NFKC")).text == "你好,世界?;"


@pytest.mark.parametrize(
    "good",
    [
        "café",
        "naïve façade",
        "“quoted” – it’s",
        "sí, señor",
        "Größe über Straße",
        "10 € or £5",
        "你好，世界",
        "Привет, мир",
        "日本語テスト",
    ],
)
@pytest.mark.parametrize("encoding", ["latin-1", "sloppy-windows-1252"])
def test_mojibake_is_repaired_in_its_line_only(good, encoding):
    broken = good.encode("utf-8").decode(encoding)
    text = f"第一行，不变。\n{broken}\nlast — líne’s “fine”"
    assert clean(text).text == f"第一行，不变。\n{good}\nlast — líne’s “fine”"
    assert clean(text, CleaningPolicy(mojibake=False, control_characters=False, zero_width=False)).text == text


@pytest.mark.parametrize("mark", "”’")
def test_a_quotation_mark_beside_an_accented_letter_is_no_mojibake(mark):
    for letter in "éèêàâäáãåçëíìî":
        text = f"vorher\n{mark}{letter}\nabc {mark}{letter} d"
        assert clean(text).text == text
    assert ftfy.fix_encoding("”é") == "ӎ"  # what the rule is for


@pytest.mark.parametrize("good", ["șapte", "mɛa", "tiān kōng lǜ sè", "məktəb", "қазақ тілі", "ܐܝܠܘܠ", "được"])
def test_words_of_rare_letters_are_still_repaired(good):
    assert clean(good.encode("utf-8").decode("sloppy-windows-1252")).text == good


def test_mojibake_inside_a_chinese_line():
    done = clean("价格5â€™s，正常")
    assert done.text == "价格5’s，正常"
    assert [tuple(c) for c in done.changes] == [("mojibake", 3, 6, "â€™", "’")]


def test_ftfys_other_repairs_are_not_made():
    text = "ﬁne &amp; “curly” ＷＩＤＥ it’s \x1b[31mred"
    assert ftfy.fix_text(text) != text
    assert apply(text, mojibake(text)) == text


LETTERS = "".join(
    bytes(range(128, 256)).decode(e, errors="ignore")
    for e in (
        "latin-1",
        "sloppy-windows-1252",
        "sloppy-windows-1251",
        "sloppy-windows-1250",
        "sloppy-windows-1253",
        "iso-8859-2",
        "macroman",
        "cp437",
    )
)


@settings(deadline=None, max_examples=1000, derandomize=True)
@given(st.text(LETTERS + "ab .\xa0", max_size=5))
def test_the_quick_scan_passes_over_nothing_that_ftfy_calls_bad(text):
    assert _SUSPECT.search(text) or not is_bad(text)


def test_changes_lie_on_the_raw_text_and_name_every_rule():
    raw = "<p>caf&Atilde;&copy; &#xFEFF;x e&#x301;</p>\r\n<p>\ud800ok\x00</p>"
    done = clean(raw)
    assert done.text == "café x é\n\n\ufffdok"
    assert done.counts.pop("markup") == 7
    others = ("surrogates", "mojibake", "control_characters", "zero_width", "unicode_form")
    assert done.counts == dict.fromkeys(others, 1)
    rules = {raw[c.raw_start : c.raw_end]: (c.rule, c.after) for c in done.changes}
    assert rules["&Atilde;&copy;"] == ("markup+mojibake", "é")
    assert rules["&#xFEFF;"] == ("markup+zero_width", "")
    assert rules["\ud800"] == ("surrogates", "\ufffd")
    assert raw[done.offsets[done.text.index("x")]] == "x"
    assert raw[done.offsets[done.text.index("ok")] :].startswith("ok\x00")


def test_a_page_is_cleaned_to_its_text():
    raw = "<!DOCTYPE html><html><head><style>b{}</style></head><body><h1>标题</h1>"
    raw += "<p>if a<3 and b>2，价格<100元</p></body></html>"
    assert clean(raw).text == "标题\n\nif a<3 and b>2，价格<100元"
    assert clean(raw, CleaningPolicy(markup="never")).text == raw


@QUICK
@given(ANY, POLICIES)
def test_changes_give_the_text_and_offsets_are_monotone(raw, policy):
    done = clean(raw, policy)
    text, last = [], 0
    for change in done.changes:
        assert last <= change.raw_start <= change.raw_end
        assert raw[change.raw_start : change.raw_end] == change.before
        text += (raw[last : change.raw_start], change.after)
        last = change.raw_end
    assert "".join(text) + raw[last:] == done.text
    at = done.offsets
    assert at.dtype == np.int32 and len(at) == len(done.text) + 1
    assert (np.diff(at) >= 0).all() and at[0] >= 0 and at[-1] <= len(raw)
    assert sum(done.counts.values()) >= len(done.changes)
    done.text.encode("utf-8")


@settings(deadline=None, max_examples=400, derandomize=True)
@given(ANY)
def test_clean_text_is_clean(raw):
    once = clean(raw).text
    if evidence(raw) or evidence(once):
        once = clean(raw, CleaningPolicy(markup="never")).text
        assert clean(once, CleaningPolicy(markup="never")).text == once
    else:
        assert clean(once).text == once


@settings(deadline=None, max_examples=400, derandomize=True)
@given(ANY, POLICIES)
def test_clean_text_is_clean_under_every_policy(raw, policy):
    once = clean(raw, policy)
    if policy.markup == "always" or (policy.markup == "auto" and (evidence(raw) or evidence(once.text))):
        policy = replace(policy, markup="never")  # text that is markup may say &amp;lt;, which means &lt;
        once = clean(raw, policy)
    assert clean(once.text, policy).text == once.text


# What looks like markup and is not, from the places where training text has it.
NOT_MARKUP = [
    "if a<3 and b>2: return x<y>z",
    "价格<100元，且>50元；若a<b且c>d，则a<d；温度<0℃ 或 >100℃",
    "fn f<'a, T: Into<String>>(x: Vec<Option<T>>) -> Result<Box<dyn Error>, E> { v.collect::<Vec<_>>() }",
    "template<typename T, class U = std::enable_if_t<(N > 0)>>\nstd::map<std::string, std::vector<int>> m; a<b && c>d;",
    "List<Object> a; Map<Label, List<Time>> b; Foo<B> x; type F<P> = (p: P) => void; let f = <P,>(p: P) => p",
    "$a<b>c$, $i<j$ and $j>i$, $0<p<1$, $P(X<x | Y>y)$, $\\langle a, b\\rangle$",
    "cat <<EOF > out.txt\n  hello  $USER\nEOF\ncat <<-'END' | sed 's/<b>/x/'\n\tEND\ndiff <(sort a) <(sort b) 2>&1",
    "--- a/f.html\n+++ b/f.html\n@@ -1,3 +1,3 @@\n-<b>old\n+<i>new\n context",
    "<<<<<<< HEAD\nx\n=======\ny\n>>>>>>> main",
    '<soap:Envelope xmlns:soap="http://x"><soap:Body/></soap:Envelope>\n<deps>\n  <dep>x</dep>\n</deps>',
    "Name <a@b.c>, <first.last@example.com>, <https://example.org/?a=1&b=2>",
    "I <3 you </3 >_< <_< <-- arrow --> <<b>>",
    "> > quoted  twice\n> once\n>> more > x < y\n> On Mon, B <b@c.d> wrote:",
    "<|im_start|>user\n<think>hm</think><s>[INST] hi [/INST]</s><unk>",
    'return <Foo bar={1} />; <Foo.Bar />; printf("<b>"); s = f"<p>{x}</p>"; el.innerHTML = `<div>${x}</div>`;',
    "use <code> for code, the <table> element, R&D &lt;b&gt; &amp; AT&T",
    '#include <map>\n#include <set>\n#include <code>\n\nint  main() { std::cout << a << "<br>" << b; }',
    "x <- y; z <<- 3; func f[T any](x T) <-chan T { return <-c }; for (i=0;i<n;i++) if (x>y) z<<=2;",
]


@pytest.mark.parametrize("text", NOT_MARKUP)
def test_what_is_not_markup_survives_byte_for_byte(text):
    done = clean(text)
    assert done.text == text and done.changes == ()


@pytest.mark.parametrize("text", [t for t in NOT_MARKUP if t.startswith(("if a<3", "价格", "fn f<", "Name <"))])
def test_and_inside_a_page_as_well(text):
    assert clean(f"<!doctype html><html><body><p>{text}</p></body></html>").text == text


@QUICK
@given(ANY)
def test_where_rules_only_delete_every_character_is_the_raw_one(raw):
    raw = raw.replace("\ud800", "")
    done = clean(raw, CleaningPolicy(markup="never", mojibake=False, line_ends=False, unicode_form="none"))
    assert "".join(raw[i] for i in done.offsets[:-1]) == done.text
    assert len(set(done.offsets[:-1].tolist())) == len(done.text)


@QUICK
@given(
    st.text("abé中文，“”👩\n", max_size=40),
    st.text("\0\x07\u200b\ufeff\u00ad\u202e", min_size=1, max_size=3),
    st.randoms(use_true_random=False),
)
def test_noise_put_into_clean_text_is_taken_out_again(good, noise, rng):
    noisy = "".join(c + (noise if rng.random() < 0.3 else "") for c in good)
    assert clean(noisy).text == good


@pytest.mark.parametrize(
    "raw, text",
    [
        ("", ""),
        ("\0\x01\x7f", ""),
        ("\u200b\ufeff\u2060", ""),
        ("👨\u200d👩\u200d👧" * 3, "👨\u200d👩\u200d👧" * 3),
        ("🏽", "🏽"),
        ("שלום \u202bworld\u202c عالم", "שלום world عالم"),
        ("\ud83d", "\ufffd"),
        ("\r", "\n"),
        (" \n\t ", " \n\t "),
        ("Ã\0©", "é"),
    ],
)
def test_odd_strings(raw, text):
    assert clean(raw).text == text


@pytest.mark.parametrize(
    "part, size",
    [("今天天气很好，我们去公园。\r\n", 1_000_000), ("<p>some <b>bold</b> text that goes on &amp; on for a while</p>\n", 1_000_000)]
    + [(part, 150_000) for part in ("cafÃ© ", "Ã©", "e\u0301", "\0a", "\u200b", "👩\u200d🔬", '<a "', "`` ` ")],
)  # fmt: skip
def test_a_large_text_is_no_trouble(part, size):
    raw = part * (size // len(part.encode()))
    done = clean(raw)
    assert len(done.offsets) == len(done.text) + 1
    assert clean(done.text, CleaningPolicy(markup="never")).text == done.text


def test_c1_controls_are_windows_1252_in_a_latin_line_and_go_elsewhere():
    assert clean("\x93yes\x94 caf\xe9\n中\x93文\x85第二行").text == "“yes” café\n中文\n第二行"
    assert clean("\x93yes\x94 \x85", CleaningPolicy(mojibake=False)).text == "yes \n"


def test_policy_refuses_what_it_does_not_know_and_names_itself():
    for wrong in ({"markup": "html"}, {"unicode_form": "NFD"}, {"mojibake": 1}, {"zero_widht": True}):
        with pytest.raises(SettingError) as error:
            CleaningPolicy(**wrong)
        assert next(iter(wrong)) in str(error.value) and "\n" not in str(error.value)
    assert CleaningPolicy().fingerprint == DEFAULT.fingerprint != CleaningPolicy(fold_width=True).fingerprint
    assert len({CleaningPolicy(unicode_form=f).fingerprint for f in ("NFC", "NFKC", "none")}) == 3
