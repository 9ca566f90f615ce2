package main

import "fmt"

// A market is a country with its money and its people.
type market struct {
	country, currency string
	decimals          int   // of the currency
	rate              int64 // 100 cents in smallest units of the currency
	names, cities     []string
	methods, carriers []string
}

// format writes an amount of smallest units the way the currency does.
func (m market) format(n int64) string {
	unit := int64(1)
	for range m.decimals {
		unit *= 10
	}
	if unit == 1 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d.%0*d", n/unit, m.decimals, n%unit)
}

var markets = []market{
	{"DE", "EUR", 2, 100, []string{"Jürgen Groß", "Anneliese Müller", "Björn Weiß"}, []string{"Köln", "München", "Görlitz"}, []string{"card", "invoice", "sepa_debit"}, []string{"DHL", "Hermes"}},
	{"FR", "EUR", 2, 100, []string{"Zoé Lefèvre", "François D'Aramitz", "Maëlle Nuñez"}, []string{"Besançon", "Nîmes", "L'Haÿ-les-Roses"}, []string{"card", "paypal"}, []string{"Colissimo", "Chronopost"}},
	{"GB", "GBP", 2, 86, []string{"Ada Byron", "Siân O'Connor", "Nikhil Rao"}, []string{"Leeds", "Ynys Môn", "Stoke-on-Trent"}, []string{"card", "direct_debit"}, []string{"Royal Mail", "Evri"}},
	{"US", "USD", 2, 108, []string{"Grace Murray", "José Hernández", "Beyoncé \"Bee\" Smith"}, []string{"San José", "Doña Ana", "New York"}, []string{"card", "paypal", "gift_card"}, []string{"UPS", "USPS", "FedEx"}},
	{"SE", "SEK", 2, 1130, []string{"Åsa Öhman", "Göran Ångström"}, []string{"Malmö", "Örebro"}, []string{"swish", "card"}, []string{"PostNord"}},
	{"JP", "JPY", 0, 163, []string{"山田 太郎", "佐藤 花子", "ヤマモト アイ"}, []string{"東京", "大阪", "札幌"}, []string{"card", "konbini"}, []string{"ヤマト運輸", "日本郵便"}},
	{"KW", "KWD", 3, 333, []string{"فاطمة الصباح", "أحمد العلي"}, []string{"الكويت", "حولي"}, []string{"knet", "card"}, []string{"Aramex"}},
	{"IN", "INR", 2, 9000, []string{"प्रिया शर्मा", "Arjun Nair"}, []string{"मुंबई", "Bengaluru"}, []string{"upi", "cash_on_delivery"}, []string{"Delhivery"}},
	{"BR", "BRL", 2, 590, []string{"João Gonçalves", "Conceição Araújo"}, []string{"São Paulo", "Florianópolis"}, []string{"pix", "boleto"}, []string{"Correios"}},
	{"PL", "PLN", 2, 430, []string{"Łukasz Żółć", "Małgorzata Wiśniewska"}, []string{"Łódź", "Gdańsk"}, []string{"blik", "card"}, []string{"InPost"}},
}

var goods = []struct {
	sku, title string
	cents      int64
}{
	{"MUG", "Mug \"Good morning\", 0.3 l", 1290},
	{"TEA", "Thé vert à la menthe <bio>", 695},
	{"BOK", "Notebook A5, dotted & stitched", 1450},
	{"LMP", "Schreibtischlampe, höhenverstellbar", 8990},
	{"CHR", "Office chair Ergo™ 3", 32900},
	{"CBL", "USB-C cable, 2 m", 899},
	{"INK", "万年筆インク 月夜", 2200},
	{"SOX", "Wool socks (3 pairs) 🧦", 2495},
	{"PLT", "Zamioculcas, Ø 14 cm 🪴", 1799},
	{"STK", "Sticker", 50},
	{"CAM", "Camera body α7", 249900},
	{"KBD", "Keyboard, ISO layout (ñ/ç)", 11900},
}

var notes = []string{
	"Please leave it with the neighbour at no. 7.",
	"It's a gift 🎁 — no invoice in the parcel, please!",
	"Bitte nicht vor 17:00 Uhr klingeln.",
	"Sonnette cassée, appelez-moi.\nMerci\u00a0!",
	"再配達は土曜日でお願いします。",
	"Happy birthday, 👩‍👩‍👧‍👦!\tLove from all of us",
	"path C:\\temp\\\"quoted\" & <b>bold</b>",
	"يرجى الاتصال قبل التسليم",
}
