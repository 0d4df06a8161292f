"""Words that the drafter's training prompts and the demo's late-order mails are made of.

The first entries of each list belong to the demo, the next to the held-out prompts, the rest to
training: no surname and no item stands in two of the three.
"""

from __future__ import annotations

from typing import Final

__all__ = ["ITEMS", "NUM_DEMO", "NUM_HELD_OUT", "SURNAMES"]

#: How many entries of each list only the demo uses, and how many only the held-out prompts.
NUM_DEMO: Final = 38
NUM_HELD_OUT: Final = 20

SURNAMES: Final = tuple(
    """
    Abara Bergstrom Calloway Delacroix Eriksen Fontana Gallagher Hartmann Iglesias Jankowski
    Kaplan Lehtonen Marchetti Nakamura Oyelaran Pettersson Quintero Rasmussen Sandoval Takahashi
    Ulrich Valdez Whitaker Xanthos Yamada Zeller Ashworth Bianchi Corrigan Dimitrov Escobar
    Falkner Gutierrez Holloway Ibrahim Jovanovic Kristensen Lombardi
    Mbeki Norgaard Ortiz Pavlova Quigley Romano Steiner Thorne Underwood Vasquez Winther Yates
    Zimmerman Albrecht Barros Cohen Duarte Engel Fitzgerald Grady
    Petrov Okafor Lindqvist Moreau Tanaka Silva Novak Haddad Jensen Kowalski Rossi Weber Nguyen
    Castillo Byrne Larsen Schmidt Ferreira Ivanova Dubois Hansen Yilmaz Costa Ahmed Fischer Popescu
    Walsh Andersson Kim Adler Bakker Carver Dalton Edwards Farkas Garcia Hughes Ingram Jacobs
    Keller Lambert Meyer Nielsen Olsen Palmer Quinn Reyes Santos Turner Usman Vogel Wagner
    Young Zhang Archer Becker Clarke Dixon Evans Fuentes Gordon Hoffman Irving Jordan Klein Lewis
    Mendez Nolan Osman Pereira Ramos Sato Torres Urban Varga Wood York Zamora Alvarez Bauer Chavez
    Doyle Eklund Foster Greene Hayes Ishikawa Jimenez Khan Lopez Maier Nash Owens Parker Rivera
    Suzuki Tanner Unger Vega Wolf Yoon Ziegler Amari Bishop Cruz Diaz Elias Franco Gomez Hart
    Ibarra James Kovac Lund Mason Nemeth Odom Pinto Rao Singh Tran Uddin Vargas Watson Yang Zhou
    Aydin Blake Chen Duval Ellis Frost Gupta Hill Ito Jung Kerr Lowe Mora Noor Otto Patel Roth
    Shaw Todd Valentin Webb Yusuf Zhao Barton Carlsen Demir Ericson Fenn Grant Horvat Ives Janssen
    """.split()
)

ITEMS: Final = tuple(
    item.strip()
    for item in """
    picnic basket, hand mixer, sewing machine, oak table, ski jacket, fishing rod, bird feeder,
    office chair, chess board, beach umbrella, copper pan, yoga mat, water filter, door bell,
    record player, winter coat, garden hose, tool box, baby stroller, rice cooker, wine rack,
    desk fan, hiking boots, floor lamp, tennis racket, flower pot, sleeping bag, pepper mill,
    car battery, toy train, hair dryer, cheese knife, travel mug, photo album, log basket,
    window blind, ice skates, paper shredder,
    drum kit, soup bowl, ladder, radio clock, mountain map, cake stand, swim goggles, hedge cutter,
    violin bow, spice rack, bunk bed, laundry basket, kitchen scale, road bike, silk scarf,
    travel pillow, milk jug, sand box, metal detector, globe,
    garden bench, coffee grinder, wool blanket, desk lamp, steel kettle, bicycle helmet,
    oak bookshelf, camping tent, rain jacket, tea pot, piano stool, mountain bike, bread machine,
    leather bag, wall clock, snow shovel, reading chair, paint set, cooking pot, guitar case,
    dining table, vacuum cleaner, toaster, alarm clock, phone case, printer, keyboard, monitor,
    headphones, backpack, running shoes, wooden spoon, frying pan, lawn mower, bath towel,
    bed frame, mattress, curtain rail, carpet, mirror, bookcase, sofa, armchair, stool,
    cutting board, wine glass, coffee table, blender, juicer, waffle iron, electric drill,
    hammer, saw, screwdriver set, work gloves, garden gnome, wheelbarrow, watering can, bird bath,
    sun hat, sunglasses, umbrella, wallet, belt, tie, evening dress, wedding ring, necklace,
    watch, camera, tripod, telescope, microscope, board game, jigsaw puzzle, doll house, kite,
    skateboard, scooter, surfboard, kayak, rowing machine, treadmill, dumbbell, football,
    basketball, golf club, bow tie, ukulele, trumpet, flute, microphone, speaker, tablet, laptop,
    router, memory card, desk organiser, fountain pen, notebook, calendar, candle, vase,
    picture frame, door mat, coat rack, shoe rack, bread basket, salt lamp, air purifier, heater
    """.replace("\n", " ").split(",")
)
