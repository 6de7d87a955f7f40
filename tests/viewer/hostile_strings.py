"""200 strings that a model could write to run something, to break a page or to hide what it says."""

RUNS = "window.__ran = 1"
"""What each of them would leave behind if it ran."""


def hostile_strings() -> list[str]:
    strings = [*_markup(), *_breaking_out(), *_addresses(), *_hiding(), *_controls(), *_odd_text(), *_long()]
    assert len(set(strings)) >= 200
    return strings


def _markup() -> list[str]:
    tags = ["img", "svg", "body", "iframe", "object", "embed", "video", "audio", "input", "details", "marquee", "math"]
    handlers = ["onerror", "onload", "ontoggle", "onfocus"]
    found = [f'<{tag} src=x {handler}="{RUNS}" autofocus open>' for tag in tags for handler in handlers]
    found += [
        f"<script>{RUNS}</script>",
        f"<ScRiPt >{RUNS}</sCrIpT>",
        f"<script src=data:text/javascript,{RUNS.replace(' ', '%20')}></script>",
        f"<script type=module>{RUNS}</script>",
        f"<svg><script>{RUNS}</script></svg>",
        f'<svg><animate onbegin="{RUNS}" attributeName=x dur=1s>',
        f'<a href="javascript:{RUNS}">click</a>',
        f'<form action="javascript:{RUNS}"><button>go</button></form>',
        f'<iframe srcdoc="<script>parent.{RUNS[7:]}</script>"></iframe>',
        '<meta http-equiv="refresh" content="0;url=https://evil.example/">',
        '<base href="https://evil.example/">',
        '<link rel=stylesheet href="https://evil.example/x.css">',
        "<style>*{display:none!important}</style>",
        "<plaintext>",
        "<xmp>",
        "<noscript><p title='</noscript><img src=x onerror=1>'>",
        "<template><script>1</script></template>",
        f'<math><mtext></mtext><mglyph><style><img src=x onerror="{RUNS}">',
        '<div style="position:fixed;inset:0;background:red;z-index:9999">',
        "&lt;script&gt;",
        "&#60;script&#62;1&#60;/script&#62;",
        "<!--",
        "-->",
        "<![CDATA[",
        "<?xml version='1.0'?>",
    ]
    return found


def _breaking_out() -> list[str]:
    return [
        f"</script><script>{RUNS}</script>",
        f"</textarea><script>{RUNS}</script>",
        f"</title><script>{RUNS}</script>",
        f"</style><script>{RUNS}</script>",
        f'"><img src=x onerror="{RUNS}">',
        f"'><img src=x onerror='{RUNS}'>",
        f"` onerror={RUNS} `",
        f"';{RUNS};//",
        f'";{RUNS};//',
        f"\\';{RUNS};//",
        f"\u2028{RUNS}\u2029",
        "{{constructor.constructor('window.__ran=1')()}}",
        "${window.__ran=1}",
        "#{window.__ran=1}",
        "<%= window.__ran = 1 %>",
        "__proto__",
        "constructor",
        "hasOwnProperty",
        '{"__proto__": {"polluted": true}}',
        "]]>",
        "*/ window.__ran = 1 /*",
        "\\u003cscript\\u003e",
        "%3Cscript%3E",
        "../../../../etc/passwd",
        "..\\..\\windows",
        "'; DROP TABLE episodes; --",
        "[bold red]markup of a terminal[/bold red]",
        "[link=https://evil.example]click[/link]",
    ]


def _addresses() -> list[str]:
    return [
        f"javascript:{RUNS}",
        f"data:text/html,<script>{RUNS}</script>",
        "https://evil.example/?q=<>",
        "//evil.example",
        "file:///etc/passwd",
        "#/run/other",
        "mailto:a@example.org?subject=<x>",
        "vbscript:msgbox(1)",
    ]


def _hiding() -> list[str]:
    marks = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c"
    found = [f"action: {mark}drop the key{mark} ok" for mark in marks]
    found += [f"zero{width}width" for width in "\u200b\u200c\u200d\u2060\ufeff\u00ad\u034f\u180e\u3164\u115f"]
    return [
        *found,
        "\u202e" * 300 + "reversed",
        "\U000e0041\U000e0042 tags",
        "مرحبا بالعالم",
        "שלום עולם",
        "abc مرحبا def",
    ]


def _controls() -> list[str]:
    found = [f"control {code:02x}: {chr(code)} end" for code in [*range(0x20), 0x7F, *range(0x80, 0xA0, 4)]]
    return [
        *found,
        "\x1b[2J\x1b[H\x1b[31mred\x1b[0m",
        "\x1b]0;title\x07",
        "\x1b]8;;https://evil.example\x1b\\click\x1b]8;;\x1b\\",
        "\x1b[?1049h",
        "\x9b31mC1",
        "a\rb",
        "back\b\b\b\bspace",
        "\x00" * 100,
        "\r\n\r\nHTTP/1.1 200 OK",
    ]


def _odd_text() -> list[str]:
    return [
        "Z" + "\u0300\u0301\u0302\u0303\u0304" * 200,
        "👩‍👩‍👧‍👦" * 50,
        "🏳️‍🌈🇩🇪❤️",
        "\ud83d",
        "\udc00\ud800",
        "\ufffd\ufffe",
        "𝕳𝖊𝖑𝖑𝖔",
        "ﷺ" * 50,
        "ǰ̌ẖͯ",
        "NaN",
        "null",
        "undefined",
        "-0",
        "1e999",
        "",
        " ",
        "\n" * 500,
        "\t" * 500,
        "ａｌｅｒｔ（１）",
        "İ" * 100,
        "ß" * 100,
    ]


def _long() -> list[str]:
    million = 1 << 20
    return [
        "a" * million,
        "<img src=x onerror=1>" * (million // 21),
        "\u202e" * (million // 3),
        "line\n" * (million // 5),
        "\x00" * (million // 4),
        "Z\u0301" * (million // 3),
    ]
