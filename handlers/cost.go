package handlers

import (
	"fmt"
	"math/big"
	"strings"

	"github.com/agentruntime/agentruntime/events"
)

// Amount is money in millionths of a unit of the currency.
type Amount int64

// The decimals of an Amount, and of what a number of tokens cost at a price per
// million of them.
const (
	amountDecimals = 6
	costDecimals   = 2 * amountDecimals
	maxAmountWhole = 9 // digits before the point
)

// ParseAmount reads a decimal number that is not negative, such as 1.25, with at
// most six decimals.
func ParseAmount(s string) (Amount, error) {
	whole, fraction, point := strings.Cut(s, ".")
	if whole == "" || point && fraction == "" || len(whole) > maxAmountWhole || len(fraction) > amountDecimals {
		return 0, fmt.Errorf("%q is no amount; write it in digits, such as 1.25, with at most %d decimals", bounded(s, maxNamed), amountDecimals)
	}
	n := int64(0)
	for _, digit := range []byte(whole + fraction + strings.Repeat("0", amountDecimals-len(fraction))) {
		if digit < '0' || digit > '9' {
			return 0, fmt.Errorf("%q is no amount; write it in digits, such as 1.25", bounded(s, maxNamed))
		}
		n = 10*n + int64(digit-'0')
	}
	return Amount(n), nil
}

// Price is what a million tokens of a model cost.
type Price struct {
	Input  Amount
	Cached Amount // of the input, what the provider's cache had
	Output Amount // reasoning included
}

// Prices tells what models cost now, by the names that definitions use.
type Prices interface {
	Price(model string) (p Price, known bool)
	Currency() string
}

// cost returns what usage costs at the prices of now, or nil where one is not
// known. Nothing of it is stored: a price may change, and what was used does not.
func (h *Host) cost(spent []events.ModelUsage) *events.Cost {
	if h.Prices == nil || len(spent) == 0 {
		return nil
	}
	sum := new(big.Int)
	for _, s := range spent {
		p, known := h.Prices.Price(s.Model)
		if !known {
			return nil
		}
		sum.Add(sum, p.cost(s.Usage))
	}
	return &events.Cost{Amount: decimal(sum), Currency: h.Prices.Currency()}
}

// Of returns what a usage costs, as an exact decimal number.
func (p Price) Of(u events.Usage) string { return decimal(p.cost(u)) }

// cost returns what a usage costs, exactly, in units of 10^-costDecimals.
func (p Price) cost(u events.Usage) *big.Int {
	sum := new(big.Int)
	for _, part := range []struct {
		tokens int64
		price  Amount
	}{{u.Input - u.Cached, p.Input}, {u.Cached, p.Cached}, {u.Output, p.Output}} {
		sum.Add(sum, new(big.Int).Mul(big.NewInt(part.tokens), big.NewInt(int64(part.price))))
	}
	return sum
}

// decimal writes a cost as a decimal number without needless zeros.
func decimal(cost *big.Int) string {
	digits := fmt.Sprintf("%0*s", costDecimals+1, cost.String())
	at := len(digits) - costDecimals
	return strings.TrimSuffix(strings.TrimRight(digits[:at]+"."+digits[at:], "0"), ".")
}
