"""Conversion between the Chinese scripts against OpenCC itself, and that converting twice is converting once."""

import subprocess
import sys
import unicodedata

import opencc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.config import fingerprint
from workbench.data import chinese
from workbench.data.chinese import script_edits, settle
from workbench.data.cleaning import RULES_VERSION, CleaningPolicy, clean, ftfy
from workbench.data.edits import apply
from workbench.errors import SettingError

S2T, T2S = (opencc.OpenCC(name).convert for name in ("s2t", "t2s"))
SCRIPTS = ("simplified", "traditional")

SIMPLIFIED = """头发白了，发现身体不好。皇后在后面，公里数和家里人。
干净的面条、面子；台湾的台风，一只猫只吃鱼。万里长城在万里之外。
他准备了几个面包，准许我们干涉内政。云说：“复杂”，又反复。
乾清宫里有乾隆的画。SQL注入、程序与内存、100元<200元。""".split("\n")
TRADITIONAL = """頭髮白了，發現身體不好。皇后在後面，公里數和家裏人。
乾淨的麪條、面子；臺灣的颱風，一隻貓只喫魚。萬里長城在萬里之外。
他準備了幾個麪包，准許我們干涉內政。雲說：“複雜”，又反覆。
乾清宮裏有乾隆的畫。SQL注入、程序與內存、100元<200元。""".split("\n")

PAIRS = list(zip(SIMPLIFIED, TRADITIONAL))

# Words that OpenCC changes again when it reads what it wrote, and characters around them.
HARD = """
万里 萬里 萬裏 乾清宮 乾清宫 干清宫 伙夫 伙伕 朱干玉戚 个样云 雲 于伦 於倫 苧 苧麻 薴 苎
么麽 幺麼 張昇 张昇 征 徵 长征 後 后 皇后 准許 准许 頭发 头髮 著 豈 丽 毛坏
""".split()
WORDS = st.one_of(
    st.sampled_from(HARD),
    st.sampled_from("，。\nab 中文发發面麪里裏干乾幹台臺只隻云雲"),
    st.characters(min_codepoint=0x4E00, max_codepoint=0x9FFF),
    st.characters(min_codepoint=0xF900, max_codepoint=0xFAFF),
    st.characters(min_codepoint=0x20000, max_codepoint=0x2A6DF),
)
TEXTS = st.lists(WORDS, max_size=14).map("".join)
MANY = settings(deadline=None, max_examples=300, derandomize=True)


def convert(text: str, script: str) -> str:
    return apply(text, script_edits(text, script))


@pytest.mark.parametrize("line, other", PAIRS)
def test_text_of_one_script_becomes_what_opencc_makes_of_it(line, other):
    assert convert(line, "traditional") == other == S2T(line)
    assert convert(other, "simplified") == line == T2S(other)


@pytest.mark.parametrize("line, other", PAIRS)
def test_text_that_is_in_the_script_already_is_left_alone(line, other):
    assert script_edits(line, "simplified") == script_edits(other, "traditional") == []


def test_a_second_pass_of_opencc_would_do_damage():
    # If this fails OpenCC has become idempotent here, and the round trip in ``chinese`` may go.
    assert S2T(S2T("万里长城")) == "萬裏長城" and T2S(T2S("乾清宮")) == "干清宫"
    assert convert("萬里长城", "traditional") == "萬里長城"


@pytest.mark.parametrize("script", SCRIPTS)
def test_converting_twice_is_converting_once(script):
    @MANY
    @given(TEXTS)
    def same(text):
        once = convert(text, script)
        assert script_edits(once, script) == [] and len(once) == len(text)

    same()


@pytest.mark.parametrize("script", SCRIPTS)
def test_cleaning_twice_is_cleaning_once_under_every_form(script):
    @MANY
    @given(
        TEXTS,
        st.sampled_from(["NFC", "NFKC", "none"]),
        st.sampled_from(["", "\0", "\u200b", "\ud800", "é", "Ã©", "⼲"]),
    )
    def same(text, form, noise):
        policy = CleaningPolicy(chinese=script, unicode_form=form, fold_width=True)
        done = clean(noise.join(text) + noise, policy)
        again = clean(done.text, policy)
        assert again.text == done.text and again.changes == ()
        done.text.encode()

    same()


@MANY
@given(TEXTS, st.sampled_from(SCRIPTS))
def test_edits_are_the_changed_stretches_line_by_line(text, script):
    edits, last = script_edits(text, script), -1
    for start, end, after, _ in edits:
        assert last < start < end <= len(text) and len(after) == end - start  # apart, or they would be one
        assert all(old != new for old, new in zip(text[start:end], after)) and "\n" not in text[start:end]
        last = end
    assert apply(text, edits) == "\n".join(convert(line, script) for line in text.split("\n"))
    assert {c for c in text if c.isascii()} == {c for c in apply(text, edits) if c.isascii()}


def test_changes_have_their_places_in_the_raw_text():
    raw = "\ufeff头发\u200b发\r\n“面条”，Ａ面"
    done = clean(raw, CleaningPolicy(chinese="traditional"))
    assert done.text == "頭髮發\n“麪條”，Ａ面"
    assert [tuple(c) for c in done.changes if "chinese" in c.rule] == [
        # The word is found where the space is gone already, so the two rules worked on one place.
        ("zero_width+chinese", 1, 5, "头发\u200b发", "頭髮發"), ("chinese", 8, 10, "面条", "麪條"),
    ]  # fmt: skip
    assert done.counts["chinese"] == 2
    assert [raw[at] for at in done.offsets[5:9]] == ["面", "条", "”", "，"]


def test_by_default_both_scripts_stay_byte_for_byte():
    text = "\n".join([*SIMPLIFIED, *TRADITIONAL, *HARD[:-3]])
    assert clean(text).text == text and CleaningPolicy().chinese == "keep"


def test_compatibility_ideographs_are_left_to_the_unicode_form():
    text = "\uf900\uf909契"  # 豈 and 契 have a form of their own in this block
    for form in ("none", "NFC"):
        done = clean(text, CleaningPolicy(chinese="traditional", unicode_form=form)).text
        assert done == (text if form == "none" else unicodedata.normalize("NFC", text))
    assert convert("\uf900\uf909", "simplified") == "岂\uf909"


def test_a_circle_of_texts_settles_on_one_of_them():
    turn = str.maketrans("bcdx", "cdbb")

    def to(text):
        return text.translate(turn)

    assert [settle(text, to, lambda text: text) for text in ("b", "c", "d", "x", "xd", "a")] == [
        "b", "b", "b", "b", "bb", "a",
    ]  # fmt: skip
    # Two letters that turn together: the first text of their circle, from wherever it is entered.
    assert settle("bc", to, str) == settle("cd", to, str) == settle("db", to, str) == "bc"


def test_an_opencc_that_changes_lengths_is_refused():
    with pytest.raises(SettingError, match="chinese.*1 characters into 2.*opencc 1.4"):
        settle("內", lambda text: text + "x", str)


def test_without_the_package_only_conversion_is_refused(monkeypatch):
    chinese._converter.cache_clear()
    monkeypatch.setitem(sys.modules, "opencc", None)
    policy = CleaningPolicy(chinese="simplified")
    for use in (lambda: clean("頭髮", policy), lambda: policy.fingerprint):
        with pytest.raises(SettingError, match="pip install opencc") as error:
            use()
        assert "\n" not in str(error.value)
    assert clean("頭髮").text == "頭髮" and clean("ascii", policy).text == "ascii"
    assert len(CleaningPolicy().fingerprint) == 16


def test_a_wrong_script_is_refused_when_the_policy_is_made():
    with pytest.raises(SettingError, match="chinese='hant'.*keep, simplified or traditional"):
        CleaningPolicy(chinese="hant")


def test_the_fingerprint_names_opencc_only_where_it_is_used(monkeypatch):
    names = ("markup", "mojibake", "line_ends", "control_characters", "zero_width", "fold_width", "fold_quotes")
    before = {name: getattr(CleaningPolicy(), name) for name in (*names, "unicode_form")}
    kept = CleaningPolicy().fingerprint
    assert kept == fingerprint(before, RULES_VERSION, ftfy.__version__, unicodedata.unidata_version)
    asked = [CleaningPolicy(chinese=script).fingerprint for script in SCRIPTS]
    assert len({kept, *asked}) == 3
    monkeypatch.setattr(opencc, "__version__", "0.0")
    assert CleaningPolicy().fingerprint == kept
    assert not {CleaningPolicy(chinese=script).fingerprint for script in SCRIPTS} & {kept, *asked}


def test_importing_the_data_code_loads_no_heavy_package():
    code = "import sys, workbench.data.cleaning, workbench.data.documents; print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for name in ("opencc", "transformers", "mindspore", "torch", "pyarrow"):
        assert f"'{name}'" not in loaded
