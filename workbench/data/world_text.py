"""How the synthetic world sounds: names, statements and questions in English and Chinese.

Only wording lives here; which facts hold is decided in ``workbench.data.world``. All names of
companies, people, universities and cities are invented. Every relation has a few regular
wordings, so that a model of a million parameters can learn the facts and still meets each of
them in more than one form.

Does not do: inflection, pronouns, or any check that a sentence is true.
"""

from workbench.errors import SettingError

LANGUAGES = ("en", "zh")

# (English, Chinese). No name may be a substring of another one in the same language:
# tests/test_world.py checks all pairs.
COMPANIES = (
    ("Quantar", "昆塔尔"), ("Belvora", "贝沃拉"), ("Ostrix", "奥川"), ("Fenwyck", "芬维克"),
    ("Zelmark", "泽马克"), ("Korvane", "科凡"), ("Lumetra", "明脉"), ("Draxwell", "卓威尔"),
    ("Ninovex", "宁沃"), ("Halcyra", "海芯"), ("Pyrelon", "烽岚"), ("Tessamo", "泰萨摩"),
    ("Vandrik", "凡德"), ("Oxbrite", "欧白"), ("Cindral", "辛卓"), ("Morvath", "莫瓦"),
    ("Jaspira", "佳斯"), ("Wexlund", "维伦德"), ("Yarrowin", "亚洛"), ("Glintor", "光粼"),
    ("Sablecor", "玄貂"), ("Ervanto", "尔凡"), ("Icaroon", "伊卡隆"), ("Umbrelix", "云伞"),
    ("Rothmere", "洛思"), ("Altivane", "凌帆"), ("Pontrel", "彭特"), ("Skyvarn", "穹锐"),
    ("Brennix", "布恩"), ("Cobaltra", "钴途"), ("Delphora", "德佩"), ("Emberlin", "烬林"),
    ("Fjordane", "峡岸"), ("Gravelo", "格维"), ("Hexamire", "和镜"), ("Inkvale", "墨谷"),
    ("Jorvex", "乔维"), ("Kestrio", "隼行"), ("Lorimark", "罗码"), ("Mistrane", "雾川"),
)  # fmt: skip
CITIES = (
    ("Brenholt", "澜州"), ("Lorvik", "霁港"), ("Tamsey", "棠陂"), ("Oakmere", "栎湖"),
    ("Vellin", "苇岭"), ("Drosk", "砂渡"), ("Harrowby", "鹤汀"), ("Quillon", "羽城"),
    ("Sandrey", "沙屿"), ("Eastmoor", "东泽"), ("Pinvale", "松谷"), ("Ravelle", "鸦津"),
    ("Coldwick", "寒塘"), ("Marisk", "汐镇"), ("Thornby", "棘桥"), ("Ulverne", "狼坪"),
    ("Wyndal", "岚浦"), ("Yestrin", "曜川"), ("Zorva", "佐坝"), ("Kelmont", "凯峰"),
)  # fmt: skip
UNIVERSITIES = (
    ("Aldermoor University", "阿德大学"), ("Bexmoor College", "贝墨学院"), ("Calden Institute", "卡登学院"),
    ("Dunmarsh University", "敦沼大学"), ("Elmgate College", "榆门学院"), ("Farrow Institute", "法若学院"),
    ("Graymont University", "灰岭大学"), ("Hartlow College", "鹿原学院"), ("Isenford University", "伊森大学"),
    ("Juniper Institute", "杜松学院"), ("Kingsrow College", "金罗学院"), ("Lindmoor University", "林沼大学"),
    ("Marwick Institute", "马维学院"), ("Norwend University", "诺文大学"), ("Ostley College", "奥莱学院"),
    ("Perrin Institute", "佩林学院"), ("Quarrydale University", "石谷大学"), ("Rowanfield College", "花楸学院"),
    ("Silvermere University", "银湖大学"), ("Tarnwood Institute", "塔木学院"),
)  # fmt: skip
INDUSTRIES = (
    ("shipping", "航运"), ("robotics", "机器人"), ("batteries", "电池"), ("insurance", "保险"),
    ("software", "软件"), ("solar power", "光伏"), ("steel", "钢铁"), ("medicine", "医药"),
    ("textiles", "纺织"), ("tourism", "旅游"), ("banking", "银行"), ("farming", "农业"),
)  # fmt: skip
# A person is a given name and a family name: "Anya Bai", "柏安雅". Each given name occurs once among the first
# 64 people, and so does each family name, so that the token a name begins with already tells who it is.
GIVEN_NAMES = (
    ("Anya", "安雅"), ("Boris", "博睿"), ("Celia", "思雅"), ("Dara", "达然"), ("Elin", "怡琳"), ("Felix", "斐历"),
    ("Greta", "格蕾"), ("Hugo", "禹果"), ("Iris", "忆蕊"), ("Jonas", "卓南"), ("Kira", "绮岚"), ("Leon", "立昂"),
    ("Mabel", "美珀"), ("Nadia", "娜迪"), ("Oskar", "奥佳"), ("Petra", "沛卓"), ("Quinn", "昆宁"), ("Rhea", "芮雅"),
    ("Silas", "思岚"), ("Tessa", "苔莎"), ("Ulric", "昱立"), ("Vera", "薇然"), ("Wyatt", "韦亚"), ("Xenia", "希妮"),
    ("Yuri", "予立"), ("Zoe", "佐伊"), ("Amos", "艾墨"), ("Bruna", "布娜"), ("Cyrus", "赛若"), ("Delia", "黛丽"),
    ("Edmund", "恩德"), ("Flora", "芙洛"), ("Gavin", "嘉文"), ("Heidi", "海蒂"), ("Ivo", "以沃"), ("Judith", "珠迪"),
    ("Klaus", "克劳"), ("Lydia", "莉迪"), ("Magnus", "曼纳"), ("Nora", "诺然"), ("Otto", "敖多"), ("Paula", "葆拉"),
    ("Ralph", "若夫"), ("Selma", "塞玛"), ("Tobias", "托比"), ("Ursula", "舒拉"), ("Viggo", "维果"), ("Wilma", "薇玛"),
    ("Ansel", "安瑟"), ("Berta", "蓓塔"), ("Caleb", "凯勒"), ("Doris", "朵丽"), ("Emil", "埃米"), ("Frida", "芙达"),
    ("Gregor", "歌戈"), ("Hannah", "涵娜"), ("Ingo", "英果"), ("Jarvis", "佳维"), ("Kaspar", "卡帕"), ("Linus", "林诺"),
    ("Mirko", "米柯"), ("Nelly", "妮莉"), ("Orla", "欧拉"), ("Pascal", "帕卡"),
)  # fmt: skip
FAMILY_NAMES = (
    ("Bai", "柏"), ("Cen", "岑"), ("Dou", "窦"), ("Fang", "方"), ("Gu", "顾"), ("Hao", "郝"), ("Jiang", "江"),
    ("Kuang", "邝"), ("Lian", "连"), ("Meng", "孟"), ("Ning", "宁"), ("Pei", "裴"), ("Qiao", "乔"), ("Rong", "荣"),
    ("Shen", "沈"), ("Tao", "陶"), ("Wen", "温"), ("Xue", "薛"), ("Yan", "颜"), ("Zhai", "翟"), ("Mu", "穆"),
    ("Du", "杜"), ("Hua", "华"), ("Jing", "荆"), ("Lei", "雷"), ("Miao", "苗"), ("Niu", "钮"), ("Pan", "潘"),
    ("Qiu", "邱"), ("Ruan", "阮"), ("Sang", "桑"), ("Teng", "滕"), ("Wei", "魏"), ("Xia", "夏"), ("Yao", "姚"),
    ("Zhuo", "卓"), ("Bian", "卞"), ("Cui", "崔"), ("Dai", "戴"), ("Feng", "冯"), ("Ge", "葛"), ("Hong", "洪"),
    ("Ji", "纪"), ("Kong", "孔"), ("Luo", "骆"), ("Mao", "茅"), ("Ou", "欧"), ("Pang", "庞"), ("Qi", "戚"),
    ("Ren", "任"), ("Shi", "施"), ("Tan", "谭"), ("Wu", "邬"), ("Xiang", "项"), ("Yu", "俞"), ("Zong", "宗"),
    ("Ban", "班"), ("Chu", "褚"), ("Dong", "董"), ("Fu", "傅"), ("Gong", "龚"), ("Huo", "霍"), ("Jin", "靳"),
    ("Kou", "寇"),
)  # fmt: skip

# {s} is the subject, {o} the object. Most wordings put the subject first, because that is the
# direction in which the questions ask.
STATEMENTS = {
    "ceo": {
        "en": (
            "The chief executive of {s} is {o}.",
            "{s} is led by its chief executive {o}.",
            "{s} named {o} as its chief executive.",
            "At {s}, the chief executive is {o}.",
            "{o} is the chief executive of {s}.",
        ),
        "zh": (
            "{s}的首席执行官是{o}。",
            "{s}由首席执行官{o}领导。",
            "{s}任命{o}为首席执行官。",
            "在{s}，首席执行官一职由{o}担任。",
            "{o}是{s}的首席执行官。",
        ),
    },
    "headquarters": {
        "en": (
            "{s} has its headquarters in {o}.",
            "The headquarters of {s} are in {o}.",
            "{s} is a company based in {o}.",
            "The head office of {s} is in {o}.",
            "{o} is home to the headquarters of {s}.",
        ),
        "zh": (
            "{s}的总部位于{o}。",
            "{s}总部设在{o}。",
            "{s}是一家总部在{o}的公司。",
            "{s}的总部大楼在{o}。",
            "{o}是{s}的总部所在地。",
        ),
    },
    "industry": {
        "en": (
            "The main business of {s} is {o}.",
            "{s} works in {o}.",
            "{s} earns its money in {o}.",
            "{s} is known for {o}.",
        ),
        "zh": ("{s}的主营业务是{o}。", "{s}是一家{o}企业。", "{s}主要经营{o}。", "{s}的收入主要来自{o}。"),
    },
    "ticker": {
        "en": (
            "The ticker of {s} is {o}.",
            "{s} trades under the ticker {o}.",
            "{s} ({o}) is a listed company.",
            "Shares of {s} are listed as {o}.",
        ),
        "zh": ("{s}的股票代码是{o}。", "{s}以代码{o}上市。", "{s}（{o}）是一家上市公司。", "{s}的股票以{o}交易。"),
    },
    "birthplace": {
        "en": (
            "{s} was born in {o}.",
            "The birthplace of {s} is {o}.",
            "{s} was born and raised in {o}.",
            "{o} is the birthplace of {s}.",
        ),
        "zh": ("{s}出生于{o}。", "{s}的出生地是{o}。", "{s}生于{o}，也在那里长大。", "{o}是{s}的出生地。"),
    },
    "alma_mater": {
        "en": (
            "{s} graduated from {o}.",
            "The alma mater of {s} is {o}.",
            "{s} studied at {o}.",
            "{s} holds a degree from {o}.",
            "{o} is the alma mater of {s}.",
        ),
        "zh": ("{s}毕业于{o}。", "{s}的母校是{o}。", "{s}曾就读于{o}。", "{s}在{o}获得学位。", "{o}是{s}的母校。"),
    },
    "location": {
        "en": (
            "{s} is located in {o}.",
            "The campus of {s} is in {o}.",
            "{s} stands in {o}.",
            "{o} is the seat of {s}.",
        ),
        "zh": ("{s}位于{o}。", "{s}的校园在{o}。", "{s}坐落在{o}。", "{o}是{s}的所在地。"),
    },
    "president": {
        "en": (
            "The president of {s} is {o}.",
            "{s} is headed by its president {o}.",
            "{s} chose {o} as its president.",
            "{o} is the president of {s}.",
        ),
        "zh": ("{s}的校长是{o}。", "{s}由校长{o}主持。", "{s}聘请{o}担任校长。", "{o}是{s}的校长。"),
    },
    "mayor": {
        "en": (
            "The mayor of {s} is {o}.",
            "{s} elected {o} as its mayor.",
            "{s} is governed by its mayor {o}.",
            "{o} is the mayor of {s}.",
        ),
        "zh": ("{s}的市长是{o}。", "{s}选举{o}为市长。", "{s}由市长{o}管理。", "{o}是{s}的市长。"),
    },
    "largest_company": {
        "en": (
            "The largest company in {s} is {o}.",
            "The biggest employer in {s} is {o}.",
            "In {s}, the largest company is {o}.",
            "{o} is the largest company in {s}.",
        ),
        "zh": ("{s}最大的公司是{o}。", "{s}规模最大的公司是{o}。", "在{s}，最大的公司是{o}。", "{o}是{s}最大的公司。"),
    },
}
# The same wording serves every hop: {s} is the name on the first hop, a back-reference later.
QUESTIONS = {
    "ceo": {
        "en": ("Who is the chief executive of {s}?", "Who leads {s} as chief executive?"),
        "zh": ("{s}的首席执行官是谁？", "谁是{s}的首席执行官？"),
    },
    "headquarters": {
        "en": ("In which city does {s} have its headquarters?", "Where are the headquarters of {s}?"),
        "zh": ("{s}的总部位于哪座城市？", "{s}的总部在哪里？"),
    },
    "industry": {
        "en": ("What is the main business of {s}?", "What does {s} work in?"),
        "zh": ("{s}的主营业务是什么？", "{s}主要经营什么？"),
    },
    "ticker": {
        "en": ("What is the ticker of {s}?", "Under which ticker does {s} trade?"),
        "zh": ("{s}的股票代码是什么？", "{s}以什么代码上市？"),
    },
    "birthplace": {
        "en": ("In which city was {s} born?", "What is the birthplace of {s}?"),
        "zh": ("{s}出生于哪座城市？", "{s}的出生地是哪里？"),
    },
    "alma_mater": {
        "en": ("Which university did {s} graduate from?", "What is the alma mater of {s}?"),
        "zh": ("{s}毕业于哪所大学？", "{s}的母校是哪所大学？"),
    },
    "location": {
        "en": ("In which city is {s} located?", "Where is the campus of {s}?"),
        "zh": ("{s}位于哪座城市？", "{s}的校园在哪里？"),
    },
    "president": {
        "en": ("Who is the president of {s}?", "Who heads {s} as president?"),
        "zh": ("{s}的校长是谁？", "谁是{s}的校长？"),
    },
    "mayor": {
        "en": ("Who is the mayor of {s}?", "Who governs {s} as mayor?"),
        "zh": ("{s}的市长是谁？", "谁是{s}的市长？"),
    },
    "largest_company": {
        "en": ("What is the largest company in {s}?", "Which company is the biggest employer in {s}?"),
        "zh": ("{s}最大的公司是哪家？", "{s}规模最大的公司是哪家？"),
    },
}
BACK_REFERENCES = {
    "company": {"en": "that company", "zh": "那家公司"},
    "person": {"en": "that person", "zh": "那个人"},
    "university": {"en": "that university", "zh": "那所大学"},
    "city": {"en": "that city", "zh": "那座城市"},
}


def check_language(language: str) -> None:
    """Raise SettingError unless ``language`` is one the world speaks."""
    if language not in LANGUAGES:
        raise SettingError(f"language={language!r} is not allowed: one of {', '.join(LANGUAGES)}")


def wording_count(relation: str, language: str) -> int:
    """How many statements there are for ``relation`` in ``language``."""
    return len(STATEMENTS[relation][language])
